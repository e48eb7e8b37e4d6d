"""MkDocs hooks that generate parts of the documentation from the code.

On each page, the lines ``{{ operators }}``, ``{{ commands }}``, ``{{ errors }}``,
``{{ limits }}``, ``{{ settings }}``, ``{{ presets }}``, ``{{ algorithm }}``,
``{{ model_card }}``, ``{{ fields PATH.OF.A.SPEC }}`` and ``{{ contents PATH.OF.A.RESULT }}``
are replaced by generated Markdown.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from aps_cli.main import main as aps  # noqa: E402 - needs the path set above
from aps_core.checkpoints.manifest import CHECKPOINTS, Checkpoint  # noqa: E402
from aps_core.errors import APSError  # noqa: E402
from aps_core.operators import OperatorSpec  # noqa: E402
from aps_core.priors import ImagePriorSpec  # noqa: E402
from aps_core.priors.base import PRESETS  # noqa: E402
from aps_core.samplers import SamplerSpec  # noqa: E402
from scripts.docs_fields import contents, fields  # noqa: E402


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replaces placeholder lines and removes links to repository files outside the docs, where no
    picture is.
    """
    made = re.sub(
        r"^\{\{ (\w+) ?([\w.]*) \}\}$",
        lambda found: MADE[found[1]](*found[2].split()),
        markdown,
        flags=re.MULTILINE,
    )
    # such files are not pages of the documentation
    return re.sub(r"(?<!!)\[([^\]]+)\]\(\.\./[^)]+\.(?!md\b)[a-z]+\)", r"\1", made)


def on_page_content(html: str, **_: Any) -> str:
    """Removes Sphinx roles such as ``:class:`` from docstrings and keeps the names."""
    return re.sub(r":(?:class|meth|mod|func|data):<code>~?", "<code>", html)


def operators() -> str:
    """Renders picture, summary and fields of every built-in operator."""
    return "\n\n".join(
        _operator(name)
        for name in sorted(OperatorSpec.family)
        if OperatorSpec.named(name).__module__.startswith("aps_core")
    )


def _operator(name: str) -> str:
    spec = OperatorSpec.named(name)
    picture = (
        f"![Truth, measurement and restoration](gallery/{name}.webp)\n\n"
        if (ROOT / f"docs/gallery/{name}.webp").exists()
        else ""
    )
    rows = [
        f"| `{field}` | {'needed' if info.is_required() else f'`{info.default}`'} |"
        f" {info.description} |"
        for field, info in spec.model_fields.items()
        if field != "type"
    ]
    table = (
        "\n".join(["| field | default | meaning |", "|---|---|---|", *rows])
        if rows
        else "No fields."
    )
    return f"## {name}\n\n{spec.summary().replace('``', '`')}\n\n{picture}{table}"


def commands() -> str:
    """Renders the help text of every command."""
    return "\n\n".join(f"## {path}\n\n```text\n{text}\n```" for path, text in _helps(aps, "aps"))


def _helps(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    context = click.Context(
        command,
        info_name=path,
        max_content_width=100,
        terminal_width=100,
        help_option_names=["-h", "--help"],
    )
    yield path, command.get_help(context)
    if isinstance(command, click.Group):
        for name, child in sorted(command.commands.items()):
            yield from _helps(child, f"{path} {name}")


def errors() -> str:
    """Renders the table of error codes from the subclasses of :class:`APSError`."""
    import aps_client
    import service.main
    from service.api.problems.errors import status_of

    known: dict[str, tuple[int, type[APSError]]] = {}
    for kind in _below(APSError):
        if (
            not kind.__module__.startswith((aps_client.__name__, "tests"))
            and kind.code != APSError.code
        ):
            known.setdefault(kind.code, (status_of(kind.__new__(kind)), kind))
    assert service.main
    rows = [
        f"| `{code}` | {status if status < 500 or kind.retryable or status == 503 else '-'} |"
        f" {'yes' if kind.retryable else ''} | {_sentence(kind)} |"
        for code, (status, kind) in sorted(known.items())
    ]
    return "\n".join(["| code | status | retryable | meaning |", "|---|---|---|---|", *rows])


def _below(kind: type[APSError]) -> Iterator[type[APSError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)


def _sentence(kind: type) -> str:
    return (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ").replace("``", "`")


ALGORITHM = {
    "4": ("z_1 <- all masked", "sample_aps", "torch.full((batch, "),
    "5": ("for i = T to 1", "sample_aps", "return sample("),
    "6": ("phi <- denoiser's logits of z", "step", "problem.logits("),
    "7, 14, 15": (
        "for m = 1 to M: phi <- Adam(phi, gradient of L, eta)",
        "step",
        "inner.run(",
    ),
    "8, 9": ("x = softmax(phi); x_bar = sum_k c_k x[k]", "quantized_expectation", "expected_code("),
    "10": ("x = Q_lfq(x_bar)", "quantized_loss", "tokenizer.quantize("),
    "11": ("x_tilde = x_bar + sg[x - x_bar]", "quantized_loss", ".detach()  # line 11"),
    "12": ("x_hat = D(x_tilde)", "quantized_loss", "tokenizer.decode("),
    "13": (
        "L = reconstruction(A(x_hat), y) + lambda_p perceptual(A(x_hat), y)",
        "quantized_loss",
        "objective(x_hat_BCHW)",
    ),
    "16, 17": (
        "x* = softmax(phi); x_bar* = sum_k c_k x*[k]",
        "anchored_remasking",
        "torch.softmax(phi_NK",
    ),
    "18": ("x = Q_lfq(x_bar*)", "anchored_remasking", "tokenizer.quantize("),
    "19": ("kappa^l = <x*^l, x^l>", "anchored_remasking", "token_score("),
    "20": ("P = {l: kappa^l >= tau}", "anchored_remasking", "rank_BL < wanted_B"),
    "21": ("z_s = UpdateState(z_t, x, P)", "anchored_remasking", "torch.where(anchors_BL"),
    "23, 24": ("x_hat_final = D(z_0)", "sample_aps", "return sample("),
}
"""Line numbers and text of Algorithm 1, with the function and a fragment of the code that
implements them.
"""


def algorithm() -> str:
    """Renders the table that maps Algorithm 1 to lines of ``aps_core/aps.py``."""
    lines = (ROOT / "aps_core/aps.py").read_text().splitlines()
    rows = []
    for numbers, (paper, function, words) in ALGORITHM.items():
        start = next(
            number for number, line in enumerate(lines) if line.startswith(f"def {function}(")
        )
        place = next(number for number, line in enumerate(lines[start:], start) if words in line)
        code = lines[place].partition("  # ")[0].strip().replace("|", "\\|")
        rows.append(f"| {numbers} | {paper} | `{code}` (line {place + 1}) |")
    return "\n".join(["| line | Algorithm 1 | `aps_core/aps.py` |", "|---|---|---|", *rows])


def limits() -> str:
    """Every limit of the service, its setting, and the answer beyond it."""
    from service.api.openapi.limits_table import table

    return table()


def settings() -> str:
    """Every setting of the API and the workers: variable, default, meaning."""
    from service.limits import Limits
    from service.settings import Settings

    rows = ["| variable | default | meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        if name in Limits.model_fields:
            continue  # on the page of limits
        default = "" if field.default_factory else f"`{field.default}`"
        if field.default in (None, "", []):
            default = ""
        rows.append(f"| `APS_{name.upper()}` | {default} | {field.description} |")
    return "\n".join(rows)


def presets() -> str:
    """Steps of every preset of the priors for pictures, with the sampler of a restoration."""
    rows = [
        "| prior | sampler | preset | reverse steps | inner steps |",
        "|---|---|---|---|---|",
    ]
    for name, prior in sorted(ImagePriorSpec.family.items()):
        for preset in PRESETS if issubclass(prior, ImagePriorSpec) else ():
            sampler = prior.restoring_sampler
            chosen = prior.recommended_for(SamplerSpec.named(sampler), preset=preset)
            numbers = f"{chosen['steps']} | {chosen.get('inner_steps', '')}"
            rows.append(f"| `{name}` | `{sampler}` | {preset} | {numbers} |")
    return "\n".join(rows)


def model_card() -> str:
    """Returns the model card shipped with the weights."""
    card = (ROOT / "aps_core/embedded/MODEL_CARD.md").read_text()
    return card.replace("](../../docs/", "](").replace("# Model card: the embedded priors\n", "", 1)


def checkpoints() -> str:
    """Every published checkpoint: what it is, and the commands that bring it here."""
    return "\n\n".join(_checkpoint(entry) for entry in CHECKPOINTS.values())


def _checkpoint(entry: Checkpoint) -> str:
    size = f"{entry.bytes / 1e9:.3g} GB" if entry.bytes >= 1e9 else f"{entry.bytes / 1e6:.3g} MB"
    known = "" if entry.bytes_known else ", from the number of its parameters"
    sums = [f"`{file}` `{digest}`" for file, digest in entry.sha256.items()]
    place = f"`{entry.repo}`, revision `{entry.revision}`" if entry.repo else entry.source
    rows = {
        "published": place,
        "size": size + known,
        "SHA-256": "<br>".join(sums) or "not published where it was looked for",
        "licence": entry.licence,
        "needed by": ", ".join(entry.needed_by),
    }
    table = "\n".join(["| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in rows.items())])
    fetch = [f"aps weights fetch {entry.name}"] if entry.repo else []
    commands = "\n".join([*fetch, *entry.convert.splitlines()])
    return f"## {entry.name}\n\n{entry.what}.\n\n{table}\n\n```bash\n{commands}\n```"


MADE: dict[str, Callable[..., str]] = {
    "operators": operators,
    "commands": commands,
    "fields": fields,
    "contents": contents,
    "errors": errors,
    "limits": limits,
    "settings": settings,
    "presets": presets,
    "algorithm": algorithm,
    "model_card": model_card,
    "checkpoints": checkpoints,
}
