"""``aps guide``: a prompt in, an answer out, its tokens shown as they are decided."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from aps_cli.fields import config_from, sampler_options
from aps_core.text_config import TextConfig


@click.command()
@click.argument("prompt")
@click.option("--guidance/--no-guidance", default=True, show_default=True, help="Follow the reward model, or sample the prior alone.")
@click.option("--compare", is_flag=True, help="Also answer without guidance, from the same seed.")
@click.option("--reward", metavar="JSON", help='What is read from the reward model, for instance \'{"type": "yes_no"}\'; default: what the prior recommends.')
@click.option("--seed", default=0, show_default=True, help="Seed of every random draw.")
@click.option("--prior", default="embedded_text", show_default=True, help="Which text prior to sample from.")
@click.option("--device", default=None, help="cpu or cuda; default: cuda where there is one.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole result as JSON.")
@sampler_options(TextConfig)
def guide(prompt: str, compare: bool, reward: str | None, device: str | None, as_json: bool, **options: Any) -> None:
    """Answer PROMPT with a language diffusion model, guided towards a reward model's approval."""
    from aps_cli.restore import default_device
    from aps_core.engine import TextEngine
    from aps_core.tasks import GuideSpec, Inputs, TextProgress, TextResult, run

    settings = {"sampler": config_from(options), "reward": _reward(reward), "compare_unguided": compare, "prompt": prompt}
    spec = GuideSpec.model_validate({**settings, **{name: options[name] for name in ("guidance", "seed", "prior")}})
    spec.check(None, None, False)
    engine = TextEngine.load(spec.prior, default_device(device))
    with Live(console=Console(stderr=True), transient=True) as live:

        def show(progress: TextProgress) -> None:
            reward = f"   reward {progress.reward_curve[-1]:.3f}" if progress.reward_curve else ""
            kind = "guided" if progress.guided else "unguided"
            live.update(Text(f"{progress.text}\n{kind}, step {progress.step}/{progress.total}{reward}"))

        result = run(spec, Inputs(), engine, show)
    assert isinstance(result, TextResult)
    if as_json:
        click.echo(json.dumps(result.sidecar(), indent=1))
        return
    for answer in (result.answer, *([result.unguided] if result.unguided else [])):
        click.echo(answer.text)
        click.echo(f"({'guided' if answer.guided else 'unguided'}, reward {answer.reward:.3f})", err=True)
    for note in result.notes:
        click.echo(note, err=True)


def _reward(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint="--reward") from error
