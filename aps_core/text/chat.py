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
