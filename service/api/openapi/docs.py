"""``/docs``: Swagger UI for the OpenAPI document, served from an installed package without any
third-party host.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from fastapi import FastAPI, Request
from starlette.responses import FileResponse, HTMLResponse, Response

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Anchored posterior sampling: API</title>
<link rel="icon" href="favicon.svg">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START = (
    'SwaggerUIBundle({url: "openapi.json", dom_id: "#swagger-ui", deepLinking: true, validatorUrl:'
    " null});\n"
)
_FILES = ("swagger-ui.css", "swagger-ui-bundle.js")


def add_docs(app: FastAPI) -> None:
    """Adds the page and its files to ``app``."""
    package = find_spec("fastapi_offline")  # only its static files are used
    if package is None or package.origin is None:
        raise ModuleNotFoundError("fastapi-offline, a dependency of the service, is not installed.")
    folder = Path(package.origin).parent / "static"

    async def page(_: Request) -> Response:
        return HTMLResponse(_PAGE)

    async def start(_: Request) -> Response:
        return Response(_START, media_type="text/javascript")

    async def file(request: Request) -> Response:
        return FileResponse(
            folder / request.url.path.rpartition("/")[2], headers={"Cache-Control": "max-age=3600"}
        )

    app.add_route("/docs", page, include_in_schema=False)
    app.add_route("/docs/start.js", start, include_in_schema=False)
    for name in _FILES:
        app.add_route(f"/docs/{name}", file, include_in_schema=False)
