"""Lathe's model families written in PyTorch: the same names, shapes and order of operations."""
import torch
from torch import nn
from torch.nn import functional as F

from models_mobile import Efficientnet, MobilenetV2

ACTIVATIONS = {"relu": F.relu, "gelu": lambda x: F.gelu(x, approximate="tanh")}


class Mlp(nn.Module):
    def __init__(self, keys, shape, classes):
        super().__init__()
        widths = [shape[0] * shape[1] * shape[2], *keys["model.hidden"], classes]
        self.activation = ACTIVATIONS[keys.get("model.activation", "relu")]
        self.count = len(widths) - 1
        for i in range(self.count):
            setattr(self, f"fc{i + 1}", nn.Linear(widths[i], widths[i + 1]))

    def forward(self, x):
        x = x.flatten(1)
        for i in range(1, self.count):
            x = self.activation(getattr(self, f"fc{i}")(x))
        return getattr(self, f"fc{self.count}")(x)


class Cnn(nn.Module):
    def __init__(self, keys, shape, classes):
        super().__init__()
        h, w, c = shape
        self.stages, norm = len(keys["model.channels"]), keys["model.batch_norm"]
        self.activation = ACTIVATIONS[keys.get("model.activation", "relu")]
        for i, out in enumerate(keys["model.channels"], 1):
            setattr(self, f"conv{i}", nn.Conv2d(c, out, 3, padding=1, bias=not norm))
            setattr(self, f"bn{i}", nn.BatchNorm2d(out) if norm else nn.Identity())
            h, w, c = h // 2, w // 2, out
        dense = keys["model.dense"]
        self.fc1 = nn.Linear(h * w * c, dense or classes)
        self.fc2 = nn.Linear(dense, classes) if dense else None

    def forward(self, x):
        for i in range(1, self.stages + 1):
            x = F.max_pool2d(getattr(self, f"conv{i}")(x), 2)  # before the norm, as in src/nn/families/cnn.cpp
            x = self.activation(getattr(self, f"bn{i}")(x))
        x = self.fc1(x.flatten(1))
        return self.fc2(self.activation(x)) if self.fc2 else x


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.c_attn(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(b, t, c))


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(ACTIVATIONS["gelu"](self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.ln_2, self.mlp = nn.LayerNorm(width), FeedForward(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, keys, shape, classes):
        super().__init__()
        width = keys["model.width"]
        self.wte, self.wpe = nn.Embedding(classes, width), nn.Embedding(keys["model.sequence"], width)
        self.h = nn.ModuleList(Block(width, keys["model.heads"]) for _ in range(keys["model.layers"]))
        self.ln_f = nn.LayerNorm(width)
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        return (self.ln_f(x) @ self.wte.weight.T).flatten(0, 1)


class LlamaAttention(nn.Module):
    """Queries and keys turned by their position (halves, as in LLaMA's files for Hugging Face), heads of keys shared."""

    def __init__(self, width, heads, pairs, base):
        super().__init__()
        self.heads, self.pairs, self.base = heads, pairs, base
        self.c_attn = nn.Linear(width, width + 2 * pairs * (width // heads), bias=False)
        self.c_proj = nn.Linear(width, width, bias=False)

    def turned(self, x):
        half = x.shape[-1] // 2
        angle = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * self.base ** (-torch.arange(half, dtype=x.dtype) / half)
        a, b = x.split(half, -1)
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)

    def forward(self, x):
        b, t, c = x.shape
        qkv = self.c_attn(x).view(b, t, self.heads + 2 * self.pairs, -1).transpose(1, 2)
        q, k, v = qkv.split([self.heads, self.pairs, self.pairs], 1)
        k, v = (y.repeat_interleave(self.heads // self.pairs, 1) for y in (self.turned(k), v))
        y = F.scaled_dot_product_attention(self.turned(q), k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(b, t, c))


class LlamaBlock(nn.Module):
    def __init__(self, keys):
        super().__init__()
        width, inner = keys["model.width"], keys["model.feed_forward"]
        self.ln_1, self.ln_2 = nn.RMSNorm(width, eps=1e-6), nn.RMSNorm(width, eps=1e-6)
        self.attn = LlamaAttention(width, keys["model.heads"], keys["model.kv_heads"], keys["model.rotary_base"])
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, inner, bias=False), "gate": nn.Linear(width, inner, bias=False),
                                  "c_proj": nn.Linear(inner, width, bias=False)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        z = self.ln_2(x)
        return x + self.mlp["c_proj"](F.silu(self.mlp["gate"](z)) * self.mlp["c_fc"](z))


class Llama(nn.Module):
    """gpt in LLaMA's form: RMS norms, rotary positions, SwiGLU, no biases, a head of its own."""

    def __init__(self, keys, shape, classes):
        super().__init__()
        width = keys["model.width"]
        assert not keys["model.bias"] and not keys["model.tied"] and keys["model.mlp"] == "swiglu"
        self.wte = nn.Embedding(classes, width)
        self.h = nn.ModuleList(LlamaBlock(keys) for _ in range(keys["model.layers"]))
        self.ln_f, self.lm_head = nn.RMSNorm(width, eps=1e-6), nn.Linear(width, classes, bias=False)

    def forward(self, tokens):
        x = self.wte(tokens)
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x)).flatten(0, 1)


class Recurrent(nn.Module):
    """Rows of images read by LSTM or GRU layers under nn.LSTM's and nn.GRU's names; an LSTM has one bias, not two."""

    def __init__(self, keys, shape, classes):
        super().__init__()
        width, self.layers, self.kind = keys["model.width"], keys["model.layers"], keys["model.cell"]
        gates = {"lstm": 4, "gru": 3}[self.kind] * width
        inside, params = shape[1] * shape[2], {}
        for i in range(self.layers):
            params |= {f"weight_ih_l{i}": (gates, inside), f"weight_hh_l{i}": (gates, width)}
            params |= {f"bias_l{i}": (gates,)} if self.kind == "lstm" else {f"bias_ih_l{i}": (gates,), f"bias_hh_l{i}": (gates,)}
            inside = width
        own = nn.Module()
        for name, sizes in params.items():
            setattr(own, name, nn.Parameter((torch.rand(sizes) * 2 - 1) / width**0.5))
        setattr(self, self.kind, own)
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        rows = x.permute(2, 0, 3, 1).flatten(2)  # [T, N, W C]
        own, width = getattr(self, self.kind), self.fc.in_features
        for i in range(self.layers):
            w, b = [getattr(own, f"weight_{part}_l{i}") for part in ("ih", "hh")], []
            h = c = rows.new_zeros(rows.shape[1], width)
            out = []
            for row in rows:
                if self.kind == "lstm":
                    b = getattr(own, f"bias_l{i}")
                    h, c = torch.lstm_cell(row, (h, c), *w, b, torch.zeros_like(b))
                else:
                    h = torch.gru_cell(row, h, *w, getattr(own, f"bias_ih_l{i}"), getattr(own, f"bias_hh_l{i}"))
                out.append(h)
            rows = torch.stack(out)
        return self.fc(rows[-1])


class BasicBlock(nn.Module):
    def __init__(self, inside, out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.downsample = None
        if stride != 1 or inside != out:
            self.downsample = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.downsample(x) if self.downsample else x))


class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        out = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
        nn.init.constant_(self.bn3.weight, 0.1)  # else rounding errors grow tenfold from step to step in sixteen blocks
        self.downsample = None
        if stride != 1 or inside != out:
            self.downsample = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(self.bn3(self.conv3(y)) + (self.downsample(x) if self.downsample else x))


class Resnet(nn.Module):
    """ResNet-18 or 50 with torchvision's names."""

    def __init__(self, keys, shape, classes):
        super().__init__()
        blocks, block, grow = {18: ([2, 2, 2, 2], BasicBlock, 1), 50: ([3, 4, 6, 3], Bottleneck, 4)}[keys["model.depth"]]
        base, self.large = round(64 * keys["model.scale"]), keys["model.stem"] == "imagenet"
        self.conv1 = nn.Conv2d(shape[2], base, *((7, 2, 3) if self.large else (3, 1, 1)), bias=False)
        self.bn1 = nn.BatchNorm2d(base)
        inside = base
        for stage in range(4):
            parts = []
            for i in range(blocks[stage]):
                parts.append(block(inside, base << stage, 2 if stage and i == 0 else 1))
                inside = grow * (base << stage)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*parts))
        self.fc = nn.Linear(inside, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        if self.large:
            x = F.max_pool2d(x, 3, 2, 1)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return self.fc(x.mean((2, 3)))


class EncoderBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.self_attention = nn.LayerNorm(width, eps=1e-6), nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.0), nn.Linear(4 * width, width))

    def forward(self, x):
        y = self.ln_1(x)
        x = x + self.self_attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    def __init__(self, keys, tokens):
        super().__init__()
        width = keys["model.width"]
        self.pos_embedding = nn.Parameter(torch.randn(1, tokens, width) * 0.02)
        self.layers = nn.ModuleDict({f"encoder_layer_{i}": EncoderBlock(width, keys["model.heads"])
                                     for i in range(keys["model.layers"])})
        self.ln = nn.LayerNorm(width, eps=1e-6)

    def forward(self, x):
        x = x + self.pos_embedding
        for block in self.layers.values():
            x = block(x)
        return self.ln(x)


class Vit(nn.Module):
    """A vision transformer with torchvision's names."""

    def __init__(self, keys, shape, classes):
        super().__init__()
        patch, width, self.pool = keys["model.patch"], keys["model.width"], keys["model.pool"]
        tokens = (shape[0] // patch) * (shape[1] // patch)
        self.conv_proj = nn.Conv2d(shape[2], width, patch, patch)
        if self.pool == "token":
            self.class_token = nn.Parameter(torch.randn(1, 1, width) * 0.1)
            tokens += 1
        self.encoder = Encoder(keys, tokens)
        self.heads = nn.ModuleDict({"head": nn.Linear(width, classes)})

    def forward(self, x):
        x = self.conv_proj(x).flatten(2).transpose(1, 2)
        if self.pool == "token":
            x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1)
        x = self.encoder(x)
        return self.heads["head"](x[:, 0] if self.pool == "token" else x.mean(1))


class MixerBlock(nn.Module):
    def __init__(self, keys, tokens):
        super().__init__()
        width = keys["model.width"]
        pair = lambda size, inner: nn.ModuleDict({"fc1": nn.Linear(size, inner), "fc2": nn.Linear(inner, size)})
        self.norm1, self.mlp_tokens = nn.LayerNorm(width, eps=1e-6), pair(tokens, keys["model.token_mixing"])
        self.norm2, self.mlp_channels = nn.LayerNorm(width, eps=1e-6), pair(width, keys["model.feed_forward"])

    def forward(self, x):
        mix = lambda mlp, y: mlp["fc2"](F.gelu(mlp["fc1"](y)))
        x = x + mix(self.mlp_tokens, self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + mix(self.mlp_channels, self.norm2(x))


class Mixer(nn.Module):
    """MLP-Mixer with timm's names."""

    def __init__(self, keys, shape, classes):
        super().__init__()
        patch, width = keys["model.patch"], keys["model.width"]
        self.stem = nn.ModuleDict({"proj": nn.Conv2d(shape[2], width, patch, patch)})
        tokens = (shape[0] // patch) * (shape[1] // patch)
        self.blocks = nn.Sequential(*(MixerBlock(keys, tokens) for _ in range(keys["model.layers"])))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, classes)

    def forward(self, x):
        x = self.blocks(self.stem["proj"](x).flatten(2).transpose(1, 2))
        return self.head(self.norm(x).mean(1))


class BertLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        part = lambda inside, out: nn.ModuleDict({"dense": nn.Linear(inside, out), "LayerNorm": nn.LayerNorm(width, eps=1e-12)})
        self.attention = nn.ModuleDict({
            "self": nn.ModuleDict({name: nn.Linear(width, width) for name in ("query", "key", "value")}),
            "output": part(width, width)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, 4 * width)})
        self.output = part(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (self.attention["self"][n](x).view(b, t, self.heads, -1).transpose(1, 2) for n in ("query", "key", "value"))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c)
        out = self.attention["output"]
        x = out["LayerNorm"](x + out["dense"](y))
        return self.output["LayerNorm"](x + self.output["dense"](F.gelu(self.intermediate["dense"](x))))


class BertTokenEmbeddings(nn.Module):
    def __init__(self, width, vocab, positions):
        super().__init__()
        self.word_embeddings, self.position_embeddings = nn.Embedding(vocab, width), nn.Embedding(positions, width)
        self.token_type_embeddings = nn.Embedding(2, width)
        self.LayerNorm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, tokens):
        x = self.word_embeddings(tokens) + self.position_embeddings.weight[:tokens.shape[1]]
        return self.LayerNorm(x + self.token_type_embeddings.weight[0])


class BertEmbeddings(nn.Module):
    def __init__(self, width, rows, inside):
        super().__init__()
        self.cls_token = nn.Parameter(torch.randn(1, 1, width) * 0.1)
        self.projection = nn.Linear(inside, width)
        self.position_embeddings = nn.Embedding(rows + 1, width)
        self.LayerNorm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x):
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), self.projection(x)], 1)
        return self.LayerNorm(x + self.position_embeddings.weight)


class Bert(nn.Module):
    """BERT with Hugging Face's names, over tokens or the rows of images."""

    def __init__(self, keys, shape, classes):
        super().__init__()
        width = keys["model.width"]
        self.tokens = keys.get("model.tokens", False)
        self.embeddings = (BertTokenEmbeddings(width, keys["model.vocab"], keys["model.sequence"]) if self.tokens else
                           BertEmbeddings(width, shape[0], shape[1] * shape[2]))
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(BertLayer(width, keys["model.heads"])
                                                             for _ in range(keys["model.layers"]))})
        self.pooler = nn.ModuleDict({"dense": nn.Linear(width, width)})
        self.classifier = nn.Linear(width, classes)

    def forward(self, x):
        x = self.embeddings(x if self.tokens else x.permute(0, 2, 3, 1).flatten(2))  # rows of pixels
        for layer in self.encoder["layer"]:
            x = layer(x)
        return self.classifier(torch.tanh(self.pooler["dense"](x[:, 0])))


class DoubleConv(nn.Module):
    def __init__(self, inside, out):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(inside, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
            nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU())

    def forward(self, x):
        return self.double_conv(x)


class Unet(nn.Module):
    def __init__(self, keys, shape, classes):
        super().__init__()
        sizes = keys["model.channels"]
        self.halvings = len(sizes) - 1
        self.inc = DoubleConv(shape[2], sizes[0])
        for i in range(1, len(sizes)):
            setattr(self, f"down{i}", nn.ModuleDict({"maxpool_conv": nn.Sequential(nn.MaxPool2d(2), DoubleConv(sizes[i - 1], sizes[i]))}))
            inside, out = sizes[-i], sizes[-i - 1]
            setattr(self, f"up{i}", nn.ModuleDict({"up": nn.ConvTranspose2d(inside, out, 2, 2), "conv": DoubleConv(2 * out, out)}))
        self.outc = nn.ModuleDict({"conv": nn.Conv2d(sizes[0], classes, 1)})

    def forward(self, x):
        levels = [self.inc(x)]
        for i in range(1, self.halvings + 1):
            levels.append(getattr(self, f"down{i}")["maxpool_conv"](levels[-1]))
        y = levels.pop()
        for i in range(1, self.halvings + 1):
            up = getattr(self, f"up{i}")
            y = up["conv"](torch.cat([levels.pop(), up["up"](y)], 1))
        return self.outc["conv"](y).permute(0, 2, 3, 1).flatten(0, 2)  # a row of classes for each pixel


FAMILIES = {"bert": Bert, "unet": Unet, "mlp": Mlp, "cnn": Cnn, "resnet": Resnet, "vit": Vit, "mixer": Mixer, "gpt": Gpt, "lstm": Recurrent,
            "mobilenetv2": MobilenetV2, "efficientnet": Efficientnet}


def build(keys, shape, classes, seed):
    """A model whose every tensor is away from special values: norms that are not 1, biases and means that are not 0."""
    torch.manual_seed(seed)
    family = Llama if keys.get("model.positions") == "rotary" else FAMILIES[keys["model.family"]]
    model = family(keys, shape, classes)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.dim() == 1:
                tensor += 0.1 * torch.rand_like(tensor)
    return model
