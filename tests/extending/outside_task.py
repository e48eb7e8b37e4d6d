"""A task without a prompt in a file outside the repository's packages."""

from typing import ClassVar, Literal

from pydantic import Field

from aps_core.tasks import PictureResult, TaskSpec


class RoundTrip(TaskSpec):
    """Shows what the prior's codes keep of a picture."""

    type: Literal["outside_task"] = "outside_task"
    times: int = Field(1, ge=1, le=4, description="How often the picture is encoded.")
    pictures: ClassVar = {"image": True}

    def check(self, image, mask, has_alpha):
        pass

    def output_size(self, image):
        return image

    def work(self, image):
        return image[0] * image[1] // 16, self.times

    def resolved(self):
        return self

    def run(self, inputs, context):
        from aps_core.imaging import images

        tokenizer, engine = context.engine.prior.tokenizer, context.engine
        x_CHW = images.to_tensor(inputs.picture())
        for _ in range(self.times):
            codes_BL = tokenizer.encode(engine.padded(x_CHW)[None])
            x_BCHW = tokenizer.decode(
                tokenizer.codebook_KD[codes_BL], engine.grid(*x_CHW.shape[1:])
            )
            x_CHW = x_BCHW[0, :, : x_CHW.shape[1], : x_CHW.shape[2]]
        return PictureResult(
            spec=self,
            seconds={"sampling": 0.0, "prior": 0.0, "total": 0.0},
            fingerprint=context.fingerprint,
            pictures_BCHW=x_CHW[None],
            codes_BL=codes_BL,
        )
