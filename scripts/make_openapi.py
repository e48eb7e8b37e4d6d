"""Prints the OpenAPI document of this version.

``python scripts/make_openapi.py > docs/openapi.json`` updates the stored copy. A test checks that
it is current.
"""

import json

from service.api.openapi.document import describe
from service.main import create_app
from service.settings import Settings

if __name__ == "__main__":
    print(json.dumps(describe(create_app(Settings())), indent=1, sort_keys=True))
