"""What the documents are made of: packages by role, and which of them are withheld.

A package is a whole font family (or a few), a whole manual, or a whole book of scans; it belongs to
one split only. ``validation`` serves tuning decisions, ``evaluation`` only reported figures.
"""

from __future__ import annotations

from typing import Literal

Split = Literal["train", "validation", "evaluation"]


def _fonts(names: str) -> tuple[str, ...]:
    return tuple(f"fonts-{name}" for name in names.split())


FONTS: dict[Split, tuple[str, ...]] = {
    "evaluation": _fonts(
        """
        comfortaa courier-prime dancingscript inconsolata karla national-park oldstandard
        play quattrocento sil-andika vollkorn yanone-kaffeesatz
        """
    ),
    "validation": _fonts("b612 cabin jura manrope prociono sora"),
    "train": _fonts(
        """
        adf-accanthis adf-baskervald adf-berenis adf-gillius adf-ikarius adf-irianis adf-libris
        adf-mekanus adf-oldania adf-romande adf-solothurn adf-switzera adf-tribun
        adf-universalis adf-verana agave allerta anonymous-pro arapey atarismall averia-gwf
        averia-sans-gwf averia-serif-gwf bebas-neue blankenburg breip cabinsketch cantarell
        cardo century-catalogue clear-sans cmu comic-neue compagnon croscore crosextra-caladea
        crosextra-carlito dejavu-core dejavu-extra dkg-handwriting dosis dustin ebgaramond
        ebgaramond-extra ecolier-court elstob engadget essays1743 eurofurence f500 fanwood
        fantasque-sans femkeklaver firacode freefont-ttf georgewilliams gfs-artemisia gfs-didot
        gfs-neohellenic gnutypewriter go gotico-antiqua goudybookletter hack havana hermit
        humor-sans inter isabella jetbrains-mono junction junicode kaushanscript
        klaudia-berenika kristi lato league-mono league-spartan levien-museum levien-typoscript
        liberation lindenhill linuxlibertine lmodern lobster lobstertwo monofur monoid mononoki
        noto-mono ocr-a ocr-b okolaks open-sans opendin opendyslexic osifont oxygen paratype
        quicksand radisnoir roadgeek roboto-slab roboto-unhinted routed-gothic rufscript
        sil-charis sil-doulos sil-gentiumplus sjfonts smc-manjari staypuft stix summersby
        texgyre tiresias tuffy urw-base35 yrsa-rasa
        """
    ),
}
"""Debian's font packages; siblings of a withheld family (Karmilla of Karla) are left out."""

SCREENS: dict[Split, tuple[str, ...]] = {
    "evaluation": ("freedombox-doc-en", "gnome-user-docs", "debian-handbook"),
    "validation": ("kicad-doc-en", "umbrello-data"),
    "train": (
        "gnucash-docs",
        "gimp-help-en",
        "opencv-doc",
        "lyx-common",
        "gramps",
        "octave-doc",
        "asymptote-doc",
        "gnuplot-doc",
        "inkscape-tutorials",
    ),
}
"""Manuals whose PNG files are screens and diagrams."""

MUSIC = ("lilypond-doc",)
"""Manuals whose PNG files are engraved music, for training only."""

TYPESET = ("texlive-science-doc", "octave-doc", "r-doc-pdf", "asymptote-doc")
"""Manuals in PDF: formulas, tables, diagrams; for training only."""

SCANS = "felix-latin-data"
"""A dictionary of 1934, 1,702 scanned pages in DjVu."""

SCAN_PAGES: dict[Split, range] = {
    "train": range(40, 1100),
    "validation": range(1120, 1180),
    "evaluation": range(1200, 1700),
}

TOOLS = ("djvulibre-bin", "poppler-utils")
"""Programs that :mod:`training.documents.scans` calls: ``ddjvu`` and ``pdftoppm``."""


def packages() -> list[str]:
    """Every package that is fetched, sorted."""
    fonts = {name for names in FONTS.values() for name in names}
    screens = {name for names in SCREENS.values() for name in names}
    return sorted(fonts | screens | set(MUSIC) | set(TYPESET) | {SCANS})
