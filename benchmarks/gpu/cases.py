# SPDX-License-Identifier: Apache-2.0
"""The cases of run.py in the order in which they are run, and how each model is built."""
import dataclasses
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "models"))

TOKENS = 128
ROTATED = 3  # input buffers that calls take in turn, on both sides
FOUR = ("efficientnet_b0", "resnet50", "bert", "gpt2")


@dataclasses.dataclass(frozen=True)
class Case:
    model: str
    batch: int
    precision: str
    tokens: int = TOKENS
    peers: tuple = ()  # precisions of PyTorch; none: the same

    @property
    def onnx(self):
        return self.model if self.tokens == TOKENS else f"{self.model}_{self.tokens}"

    @property
    def name(self):
        return f"{self.onnx} b{self.batch} {self.precision}"

    @property
    def peer_precisions(self):
        return self.peers or (self.precision,)


def table():
    cases = [Case(m, b, "fp16") for b in (1, 128) for m in FOUR]
    cases += [Case(m, 1, p) for p in ("fp32", "tf32") for m in FOUR]
    cases += [Case(m, b, "fp16", 97 if m in ("bert", "gpt2") else TOKENS) for b in (3, 8) for m in FOUR]
    cases += [Case(m, b, "fp16", peers=("fp32", "fp16")) for m in ("plain6", "plain20") for b in (1, 32)]
    cases += [Case(m, 1, "fp16") for m in ("mobilenet_v2", "vit_b16", "t5_small_encoder", "unet", "detector")]
    cases += [Case(m, 8, "fp16") for m in ("mobilenet_v2", "vit_b16", "t5_small_encoder", "unet", "detector")]
    return cases


EXPORTED = {"bert": "bert_base_128", "gpt2": "gpt2_128", "t5_small_encoder": "t5_small_encoder_128", "detector": "yolo_class"}


def build(model):
    """The module that is exported, with weights of seed 0, and tokens -> the shape of a sample, and its type."""
    import export
    import torch

    model, shape, dtype = export.built(EXPORTED.get(model, model))
    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    if norms:  # statistics of a batch: with those of a fresh network its values fade away, layer by layer
        for m in norms:
            m.momentum = 1.0
        model.train()(torch.randn(4, *shape))
    return model.eval(), lambda tokens: (tokens,) if dtype == torch.int64 else shape, dtype


def peer(model, exported):
    """The same network as PyTorch runs it best, with the weights of the exported one."""
    if model == "bert":
        from transformers import BertConfig, BertModel

        best = BertModel(BertConfig(), add_pooling_layer=False)
    elif model == "gpt2":
        from transformers import GPT2Config, GPT2LMHeadModel

        best = GPT2LMHeadModel(GPT2Config(use_cache=False))
    else:
        return exported.model if hasattr(exported, "fixed") else exported
    best.load_state_dict(exported.model.state_dict(), strict=False)
    return best.eval()
