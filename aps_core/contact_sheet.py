"""The benchmark's contact sheet: one photograph a row, one method a column."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw


def contact_sheet(out: Path, shown: list[tuple[str, str, str]], methods: list[str], photos_a_task: int = 3, cell: int = 192) -> None:
    """Writes ``contact_sheet.png``: rows (protocol, task, photograph), columns truth, measurement and methods.

    ``shown`` may hold a case several times; the first ``photos_a_task`` photographs of every task are taken.
    Reads ``pictures/PROTOCOL-TASK-PHOTOGRAPH-COLUMN.png``; a missing one leaves its cell empty.
    """
    columns = ["truth", "measurement", *methods]
    cases: list[tuple[str, str, str]] = []
    for protocol, task in dict.fromkeys((protocol, task) for protocol, task, _ in shown):
        names = list(dict.fromkeys(name for p, t, name in shown if (p, t) == (protocol, task)))
        cases += [(protocol, task, name) for name in names[:photos_a_task]]
    sheet = Image.new("RGB", (len(columns) * (cell + 4), 24 + len(cases) * (cell + 4)), "white")
    draw = ImageDraw.Draw(sheet)
    for i, column in enumerate(columns):
        draw.text((i * (cell + 4) + 4, 6), column, fill="black")
    for j, (protocol, task, name) in enumerate(cases):
        for i, column in enumerate(columns):
            path = out / "pictures" / f"{protocol}-{task}-{name}-{column}.png"
            if path.exists():
                sheet.paste(Image.open(path).resize((cell, cell), Image.Resampling.NEAREST), (i * (cell + 4), 24 + j * (cell + 4)))
    sheet.save(out / "contact_sheet.png")
