"""Lathe's model families written in PyTorch: the same names, shapes and order of operations."""
import torch
from torch import nn
from torch.nn import functional as F

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
            x = F.max_pool2d(getattr(self, f"conv{i}")(x), 2)  # before the norm, as in src/nn/cnn.cpp
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


class Resnet(nn.Module):
    """ResNet-18 with torchvision's names and the stem for small images."""

    def __init__(self, keys, shape, classes):
        super().__init__()
        assert keys["model.depth"] == 18 and keys["model.stem"] == "small"
        base = round(64 * keys["model.scale"])
        self.conv1, self.bn1 = nn.Conv2d(shape[2], base, 3, 1, 1, bias=False), nn.BatchNorm2d(base)
        inside = base
        for stage in range(4):
            out = base << stage
            setattr(self, f"layer{stage + 1}", nn.Sequential(BasicBlock(inside, out, 2 if stage else 1), BasicBlock(out, out, 1)))
            inside = out
        self.fc = nn.Linear(inside, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
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
    """BERT with Hugging Face's names, over the rows of images."""

    def __init__(self, keys, shape, classes):
        super().__init__()
        width = keys["model.width"]
        self.embeddings = BertEmbeddings(width, shape[0], shape[1] * shape[2])
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(BertLayer(width, keys["model.heads"])
                                                             for _ in range(keys["model.layers"]))})
        self.pooler = nn.ModuleDict({"dense": nn.Linear(width, width)})
        self.classifier = nn.Linear(width, classes)

    def forward(self, x):
        x = self.embeddings(x.permute(0, 2, 3, 1).flatten(2))  # rows of pixels
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


FAMILIES = {"bert": Bert, "unet": Unet, "mlp": Mlp, "cnn": Cnn, "resnet": Resnet, "vit": Vit, "gpt": Gpt}


def build(keys, shape, classes, seed):
    """A model whose every tensor is away from special values: norms that are not 1, biases and means that are not 0."""
    torch.manual_seed(seed)
    model = FAMILIES[keys["model.family"]](keys, shape, classes)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.dim() == 1:
                tensor += 0.1 * torch.rand_like(tensor)
    return model
