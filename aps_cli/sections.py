"""A command whose help has sections."""

from __future__ import annotations

import click

from aps_cli.naming import NamingCommand


class SectionedCommand(NamingCommand):
    """A command whose help lists general, operator and sampler options in separate sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes one section per family, chosen by the prefix of the parameter name."""
        titles = {
            "operator": "Operator (each option names the operators it applies to)",
            "sampler": "Sampler (default: what the prior recommends, see 'aps capabilities')",
            "loss": "Loss (default: what the prior recommends)",
        }
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is None or param.name is None:
                continue
            field, nested, _ = param.name.partition("__")
            family = field if nested or field in titles else ""
            title = titles.get(family, f"{family.capitalize()}") if family else "Options"
            sections.setdefault(title, []).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
