"""Values printed in the paper's tables, for comparison with runs here.

Continuous methods appear with printed values only, as do all methods on data sets that were not
provided. Source: the paper's tables named in each docstring. The paper does not specify its LPIPS
version.
"""

from __future__ import annotations

LINEAR: dict[str, dict[str, dict[str, tuple[float, float]]]] = {
    "ffhq": {
        "DPS": {"sr4": (0.269, 25.86), "gaussian_blur": (0.219, 25.87)},
        "DDRM": {"sr4": (0.282, 26.58), "gaussian_blur": (0.239, 24.93)},
        "DiffPIR": {"sr4": (0.260, 26.64), "gaussian_blur": (0.236, 27.36)},
        "DAPS": {"sr4": (0.177, 29.07), "gaussian_blur": (0.165, 29.19)},
        "PSLD": {"sr4": (0.276, 27.62), "gaussian_blur": (0.304, 27.37)},
        "ReSample": {"sr4": (0.507, 22.98), "gaussian_blur": (0.329, 25.69)},
        "LatentDAPS": {"sr4": (0.182, 27.48), "gaussian_blur": (0.234, 27.93)},
        "SVDD-PM": {"sr4": (0.594, 12.08)},
        "G2D2": {"sr4": (0.271, 26.93), "gaussian_blur": (0.287, 26.35)},
        "SGDD": {"sr4": (0.288, 25.85)},
        "APS": {"sr4": (0.234, 27.50), "gaussian_blur": (0.276, 27.90)},
        "APS-L": {"sr4": (0.186, 28.83), "gaussian_blur": (0.241, 29.50)},
    },
    "imagenet": {
        "DPS": {"sr4": (0.367, 22.61), "gaussian_blur": (0.443, 19.04)},
        "DDRM": {"sr4": (0.352, 24.00), "gaussian_blur": (0.246, 27.30)},
        "DiffPIR": {"sr4": (0.371, 23.18), "gaussian_blur": (0.355, 22.80)},
        "DAPS": {"sr4": (0.276, 25.89), "gaussian_blur": (0.253, 26.15)},
        "PSLD": {"sr4": (0.332, 24.43), "gaussian_blur": (0.365, 24.04)},
        "ReSample": {"sr4": (0.382, 22.63), "gaussian_blur": (0.438, 22.32)},
        "LatentDAPS": {"sr4": (0.276, 25.06), "gaussian_blur": (0.345, 25.05)},
        "G2D2": {"sr4": (0.349, 23.20), "gaussian_blur": (0.375, 22.71)},
        "APS": {"sr4": (0.324, 24.30), "gaussian_blur": (0.375, 24.71)},
        "APS-L": {"sr4": (0.224, 25.74), "gaussian_blur": (0.282, 26.35)},
    },
}
"""Super resolution and Gaussian deblurring: (LPIPS, PSNR)."""

GENERAL: dict[str, dict[str, dict[str, tuple[float, float]]]] = {
    "ffhq": {
        "DPS": {
            "inpainting70": (0.203, 25.46),
            "motion_blur": (0.246, 24.52),
            "hdr": (0.264, 22.73),
            "nonlinear_blur": (0.278, 23.39),
        },
        "PSLD": {"inpainting70": (0.221, 30.31), "motion_blur": (0.336, 22.31)},
        "APS": {
            "inpainting70": (0.304, 27.38),
            "motion_blur": (0.317, 26.58),
            "hdr": (0.282, 23.89),
            "nonlinear_blur": (0.263, 27.19),
        },
        "APS-L": {
            "inpainting70": (0.291, 28.11),
            "motion_blur": (0.298, 27.98),
            "hdr": (0.323, 23.56),
            "nonlinear_blur": (0.262, 28.46),
        },
    },
    "imagenet": {
        "DPS": {
            "inpainting70": (0.297, 23.52),
            "motion_blur": (0.423, 18.96),
            "hdr": (0.503, 19.23),
            "nonlinear_blur": (0.306, 22.49),
        },
        "PSLD": {"inpainting70": (0.337, 31.30), "motion_blur": (0.511, 20.85)},
        "APS": {
            "inpainting70": (0.378, 24.59),
            "motion_blur": (0.410, 23.37),
            "hdr": (0.345, 21.92),
            "nonlinear_blur": (0.330, 24.18),
        },
        "APS-L": {
            "inpainting70": (0.338, 25.39),
            "motion_blur": (0.318, 25.19),
            "hdr": (0.346, 22.68),
            "nonlinear_blur": (0.309, 25.35),
        },
    },
}
"""General inverse problems: (LPIPS, PSNR)."""

STEPS: dict[str, tuple[float, float, float]] = {
    "0": (9.49, 0.1855, 0.6747),
    "10": (21.47, 0.5541, 0.4298),
    "50": (24.80, 0.7130, 0.2730),
    "100": (25.71, 0.7422, 0.2468),
    "200": (25.72, 0.7389, 0.2474),
}
"""Optimisation steps M, FFHQ super resolution: (PSNR, SSIM, LPIPS)."""

PERCEPTUAL: dict[str, dict[str, tuple[float, float, float]]] = {
    "ffhq": {
        "0": (27.32, 0.801, 0.311),
        "1e-05": (27.40, 0.803, 0.301),
        "0.0001": (27.67, 0.812, 0.268),
        "0.001": (26.61, 0.781, 0.247),
        "0.005": (24.90, 0.729, 0.252),
        "0.01": (24.49, 0.715, 0.256),
        "0.1": (23.44, 0.692, 0.260),
    },
    "imagenet": {
        "0": (23.98, 0.652, 0.416),
        "1e-05": (24.05, 0.658, 0.402),
        "0.0001": (24.06, 0.655, 0.380),
        "0.001": (23.61, 0.639, 0.334),
        "0.01": (22.06, 0.566, 0.325),
        "0.05": (21.44, 0.543, 0.328),
        "0.1": (21.29, 0.539, 0.327),
    },
}
"""Perceptual weight: (PSNR, SSIM, LPIPS)."""

SAME_PRIOR: dict[str, tuple[float, float, float]] = {
    "G2D2": (25.33, 0.706, 0.353),
    "G2D2, perceptual 1e-3": (25.46, 0.720, 0.349),
    "G2D2, perceptual 1e-2": (25.34, 0.707, 0.357),
    "APS": (26.80, 0.759, 0.310),
}
"""Both samplers on VQ-Diffusion, FFHQ super resolution: (PSNR, SSIM, LPIPS)."""

NOISE: dict[str, dict[str, tuple[float, float, float]]] = {
    "G2D2": {
        "0.01": (25.98, 0.739, 0.328),
        "0.02": (25.90, 0.738, 0.333),
        "0.03": (25.88, 0.733, 0.338),
        "0.04": (25.64, 0.726, 0.341),
        "0.05": (25.46, 0.717, 0.350),
    },
    "APS": {
        "0.01": (27.52, 0.784, 0.268),
        "0.02": (27.42, 0.781, 0.273),
        "0.03": (27.31, 0.774, 0.281),
        "0.04": (27.04, 0.764, 0.290),
        "0.05": (26.80, 0.759, 0.310),
    },
}
"""Robustness to noise, FFHQ super resolution on VQ-Diffusion: (PSNR, SSIM, LPIPS)."""

STYLE: dict[str, tuple[float, float, float]] = {
    "IP-Adapter": (-1.51, 0.26, 0.89),
    "StyleAligned": (0.01, 0.31, 0.85),
    "InstantStyle": (0.72, 0.33, 0.72),
    "RB-Modulation": (1.18, 0.34, 0.73),
    "MMaDA": (0.48, 0.33, 0.32),
    "APS": (0.63, 0.34, 0.41),
}
"""Stylization: (ImageReward, CLIP-T, DINO)."""

QUESTIONS: dict[str, tuple[float, float]] = {
    "LLaDA": (-0.0970, 2.1699),
    "Dream": (0.9970, 3.7523),
    "Dream+APS": (1.3786, 4.5775),
}
"""Question answering: (reward of Qwen3-0.6B, score of Qwen3-8B)."""

EFFICIENCY: tuple[tuple[str, str, int, float, int, int], ...] = (
    ("DPS", "pixel", 256, 10.7, 180, 1000),
    ("LDPS", "latent", 256, 15.4, 190, 1000),
    ("PSLD", "latent", 256, 15.5, 194, 1000),
    ("G2D2", "VQ-Diffusion", 256, 4.7, 107, 100),
    ("APS", "VQ-Diffusion", 256, 4.6, 106, 100),
    ("APS", "MMaDA", 256, 19.2, 55, 15),
    ("PSLD", "latent", 512, 20.9, 720, 1000),
    ("APS", "MMaDA", 512, 26.2, 121, 15),
    ("APS-L", "MMaDA", 1024, 51.8, 484, 15),
)
"""Sampling efficiency on one A100: method, model, pixels, GiB, seconds, steps."""
