"""A loss in a file outside the repository's packages."""

from typing import Literal

from pydantic import Field

from aps_core import LossSpec


class Huber(LossSpec):
    """Huber's norm of the residual."""

    type: Literal["outside_loss"] = "outside_loss"
    elbow: float = Field(0.5, gt=0, description="Residual at which the norm becomes linear.")

    def bind(self, operator, y_BCHW, sigma, features):
        from torch.nn.functional import huber_loss

        class Objective:
            noise_floor = temperature = 0.0

            def __call__(objective, x_BCHW):
                measured = operator(x_BCHW)
                target = y_BCHW.expand_as(measured)
                error = huber_loss(measured, target, reduction="none", delta=self.elbow)
                return error.flatten(1).sum(1), error.detach().flatten(1).mean(1)

        return Objective()
