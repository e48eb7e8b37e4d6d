"""Diagnosis of a degraded picture: its degradations in plain words, and a restore job.

Needs no torch; takes milliseconds for a small picture and about a second for 12 megapixels.
"""

from aps_core.identify.diagnosis.examine import diagnose, examine, shows_text
from aps_core.identify.diagnosis.found import Found, found_by
from aps_core.identify.diagnosis.report import Diagnosis, Finding

__all__ = ["Diagnosis", "Finding", "Found", "diagnose", "examine", "found_by", "shows_text"]
