"""The chat template of a reward model's tokenizer, split at the answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template

from aps_core.checkpoints.metadata import read_json
from aps_core.errors import WeightsInvalid, WeightsMissing
from aps_core.text.chat import Chat

ANSWER = "\u241aanswer\u241a"
"""Stands for the answer while the template is rendered; templates strip white space only."""


@dataclass(frozen=True)
class ChatTemplate:
    """A Jinja template in the form Hugging Face tokenizers publish."""

    source: str
    special: dict[str, str] = field(default_factory=dict)
    """Special tokens that templates may refer to, such as ``bos_token``."""

    @classmethod
    def of(cls, folder: Path) -> ChatTemplate:
        """Reads ``chat_template.jinja``, or the entry of ``tokenizer_config.json``.

        Raises:
            WeightsMissing: the folder has no chat template.
            WeightsInvalid: a file is damaged.
        """
        path = folder / "tokenizer_config.json"
        config: dict[str, Any] = read_json(path) if path.is_file() else {}
        source = config.get("chat_template")
        if isinstance(source, list):  # several named templates
            source = {entry["name"]: entry["template"] for entry in source}.get("default")
        if (file := folder / "chat_template.jinja").is_file():
            source = file.read_text()
        if not source:
            raise WeightsMissing(
                f"{folder} has no chat template: neither chat_template.jinja nor an entry in"
                " tokenizer_config.json."
            )
        tokens = {
            name: value["content"] if isinstance(value, dict) else value
            for name, value in config.items()
            if name.endswith("_token") and value
        }
        return cls(source, {name: text for name, text in tokens.items() if isinstance(text, str)})

    def render(self, chat: Chat, answer: str) -> str:
        """The text of a chat that ends with this answer."""
        turns = [message.model_dump() for message in chat]
        turns.append({"role": "assistant", "content": answer})
        render: Any = render_jinja_template  # annotated with another type than it returns
        texts, _ = render([turns], chat_template=self.source, **self.special)
        return str(texts[0])

    def around(self, chat: Chat) -> tuple[str, str]:
        """The text before the answer, and the text after it.

        Raises:
            WeightsInvalid: the template leaves the answer out.
        """
        before, found, after = self.render(chat, ANSWER).rpartition(ANSWER)
        if not found:
            raise WeightsInvalid("The reward model's chat template does not show the answer.")
        return before, after
