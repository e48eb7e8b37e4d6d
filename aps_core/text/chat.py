"""Chat messages, and the text with which a prior reads them. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from aps_core.registry import Config

MAX_PROMPT = 4000
"""Maximum length of a prompt or message in characters."""

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_PROMPT)]


class Message(Config):
    """One turn of a chat."""

    role: Literal["system", "user", "assistant"] = Field(description="Who says it.")
    content: Text = Field(description="What is said.")


Chat = tuple[Message, ...]
"""A conversation whose next turn is the answer."""


def chat_of(prompt: str | Sequence[Message]) -> Chat:
    """A prompt as one user message; messages unchanged."""
    if isinstance(prompt, str):
        return (Message(role="user", content=prompt),)
    return tuple(prompt)


def transcript(chat: Chat) -> str:
    """A chat as plain text: a single message's content, else every message after its role."""
    if len(chat) == 1:
        return chat[0].content
    return "\n\n".join(f"{message.role.capitalize()}: {message.content}" for message in chat)


class ChatFormat(BaseModel):
    """How a chat model delimits turns."""

    model_config = ConfigDict(frozen=True)

    turn: str
    """One message, with ``{role}`` and ``{content}``."""
    answer: str
    """Header of the answer."""
    start: str = ""
    """Text before the first turn."""
    system: str | None = None
    """System message of chats without one."""

    def render(self, chat: Chat) -> str:
        """The text of a chat, ready for the answer."""
        if self.system is not None and chat[0].role != "system":
            chat = (Message(role="system", content=self.system), *chat)
        turns = [
            self.turn.replace("{role}", message.role).replace("{content}", message.content)
            for message in chat
        ]
        return self.start + "".join(turns) + self.answer


CHATML = ChatFormat(
    turn="<|im_start|>{role}\n{content}<|im_end|>\n",
    answer="<|im_start|>assistant\n",
    system="You are a helpful assistant.",
)
"""Qwen's format, which Dream was tuned with."""

LLADA = ChatFormat(
    start="<|startoftext|>",
    turn="<|start_header_id|>{role}<|end_header_id|>\n\n{content}<|eot_id|>",
    answer="<|start_header_id|>assistant<|end_header_id|>\n\n",
)
"""LLaDA's format."""


class TextIds(BaseModel):
    """Special tokens and prompt layout of a text prior; part of its ``config.json``."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    vocab_size: int
    mask_token_id: int
    eos_token_id: int
    chat_format: ChatFormat = CHATML
    """Releases define it in code or templates."""
    prompt_format: str | None = None
    """Format of a prior that knows a single turn, with ``{prompt}`` (the embedded prior). It reads
    the texts of several messages as one prompt.
    """

    def render(self, prompt: str | Chat) -> str:
        """The text of a prompt or chat, ready for the answer."""
        chat = chat_of(prompt)
        if self.prompt_format is None:
            return self.chat_format.render(chat)
        return self.prompt_format.replace("{prompt}", transcript(chat))


class LLaDAIds(TextIds):
    """Those of LLaDA, whose release defines the chat format in code."""

    chat_format: ChatFormat = LLADA
