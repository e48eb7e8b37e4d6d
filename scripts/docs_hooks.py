"""What the documentation takes from the code when it is built: mkdocs calls the ``on_...``
functions.

A line ``{{ operators }}``, ``{{ commands }}``, ``{{ errors }}``, ``{{ algorithm }}`` or ``{{
model_card }}`` of a page is replaced.
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

from aps_cli.main import main as aps  # noqa: E402 - found through the line above
from aps_core.errors import APSError  # noqa: E402
from aps_core.operators import OperatorSpec  # noqa: E402


def on_page_markdown(markdown: str, **_: Any) -> str:
    """See the module."""
    made = re.sub(
        r"^\{\{ (\w+) \}\}$", lambda found: MADE[found[1]](), markdown, flags=re.MULTILINE
    )
    # files of the repository are no pages
    return re.sub(r"\[([^\]]+)\]\(\.\./[^)]+\.(?!md\b)[a-z]+\)", r"\1", made)


def on_page_content(html: str, **_: Any) -> str:
    """Docstrings name things as ``:class:`` and the like; here the name is enough."""
    return re.sub(r":(?:class|meth|mod|func|data):<code>~?", "<code>", html)


def operators() -> str:
    """Every operator: picture, summary, fields."""
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
    """The help of every command, as the terminal shows it."""
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
    """Every code, from the tree of errors."""
    import aps_client
    import service.main
    from service.api.problems import status_of

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
    return "\n".join(["| code | status | may pass | meaning |", "|---|---|---|---|", *rows])


def _below(kind: type[APSError]) -> Iterator[type[APSError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)


def _sentence(kind: type) -> str:
    return (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ").replace("``", "`")


ALGORITHM = {
    "4": ("z_1 <- all masked", "sample_aps", "torch.full((batch, num_tokens), MASK"),
    "5": ("for i = T to 1", "sample_aps", "return sample("),
    "6": ("phi <- denoiser's logits of z", "step", "problem.logits("),
    "7, 14, 15": (
        "for m = 1 to M: phi <- Adam(phi, gradient of L, eta)",
        "step",
        "inner.run(",
    ),
    "8, 9": ("x = softmax(phi); x_bar = sum_k c_k x[k]", "quantized_expectation", "expected_code("),
    "10": ("x = Q_lfq(x_bar)", "quantized_expectation", "tokenizer.quantize("),
    "11": ("x_tilde = x_bar + sg[x - x_bar]", "quantized_expectation", ".detach()  # line 11"),
    "12": ("x_hat = D(x_tilde)", "quantized_expectation", "tokenizer.decode("),
    "13": (
        "L = reconstruction(A(x_hat), y) + lambda_p perceptual(A(x_hat), y)",
        "quantized_expectation",
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
"""Lines of Algorithm 1, what they say, and the function and words of the line of code that does it.
"""


def algorithm() -> str:
    """The table of Algorithm 1 against ``aps_core/aps.py``, with today's line numbers."""
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


def model_card() -> str:
    """The card that ships with the weights."""
    card = (ROOT / "aps_core/embedded/MODEL_CARD.md").read_text()
    return card.replace("](../../docs/", "](").replace("# Model card: the embedded priors\n", "", 1)


MADE: dict[str, Callable[[], str]] = {
    "operators": operators,
    "commands": commands,
    "errors": errors,
    "algorithm": algorithm,
    "model_card": model_card,
}
