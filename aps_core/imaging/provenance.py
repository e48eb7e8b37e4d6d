"""Metadata of generated pictures: that a model generated them, and with which settings.

IPTC's digital source type is stored as XMP, which picture libraries and social networks read
(https://iptc.org/standards/photo-metadata, "Digital Source Type"). The same packet holds the whole
spec as JSON.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from PIL import PngImagePlugin

from aps_core.errors import InvalidSpec
from aps_core.imaging.images import to_pil

if TYPE_CHECKING:
    from torch import Tensor

COMPOSITE = "http://cv.iptc.org/newscodes/digitalsourcetype/compositeWithTrainedAlgorithmicMedia"
"""Digital source type of a picture edited by a trained model."""
TRAINED = "http://cv.iptc.org/newscodes/digitalsourcetype/trainedAlgorithmicMedia"
"""Digital source type of a picture generated entirely by a trained model."""

_XMP = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:xmp="http://ns.adobe.com/xap/1.0/"
 xmlns:Iptc4xmpExt="http://iptc.org/std/Iptc4xmpExt/2008-02-29/" xmlns:aps="urn:aps:spec:1">
<xmp:CreatorTool>aps</xmp:CreatorTool>
<Iptc4xmpExt:DigitalSourceType>{source}</Iptc4xmpExt:DigitalSourceType>
<dc:description><rdf:Alt><rdf:li xml:lang="x-default">{notice}</rdf:li></rdf:Alt></dc:description>
<aps:spec>{spec}</aps:spec>
</rdf:Description></rdf:RDF></x:xmpmeta>
<?xpacket end="r"?>"""

SUFFIXES = (".png", ".webp")
"""Supported file name suffixes; both formats are lossless."""


def check_suffix(suffix: str) -> None:
    """Checks that pictures are written in this format.

    Raises:
        InvalidSpec: ``suffix`` is not one of :data:`SUFFIXES`.
    """
    if suffix.lower() not in SUFFIXES:
        raise InvalidSpec(f"A picture is written as {' or '.join(SUFFIXES)}, not as '{suffix}'.")


def encode(x_CHW: Tensor, sidecar: Mapping[str, Any], suffix: str = ".png") -> bytes:
    """Lossless bytes of (3, H, W) in [-1, 1] with provenance metadata. Equal runs give equal bytes.

    Raises:
        InvalidSpec: ``suffix`` is not one of :data:`SUFFIXES`.
    """
    check_suffix(suffix)
    fields = {
        "source": sidecar["digital_source_type"],
        "notice": sidecar["notice"],
        "spec": json.dumps(sidecar["spec"]),
    }
    xmp = _XMP.format(**{key: escape(value) for key, value in fields.items()})
    buffer = io.BytesIO()
    if suffix.lower() == ".png":
        info = PngImagePlugin.PngInfo()
        info.add_itxt("Software", "aps")
        info.add_itxt("Comment", fields["notice"])
        info.add_itxt("XML:com.adobe.xmp", xmp)
        to_pil(x_CHW).save(buffer, "PNG", pnginfo=info, compress_level=3)
    else:
        to_pil(x_CHW).save(buffer, "WEBP", lossless=True, quality=50, xmp=xmp.encode())
    return buffer.getvalue()
