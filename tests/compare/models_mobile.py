"""Networks of inverted residuals: MobileNetV2 with torchvision's names, EfficientNet-Lite with timm's."""
import math

from torch import nn
from torch.nn import functional as F

# expansion, channels, repeats, stride, kernel
MOBILENET = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3), (6, 96, 3, 1, 3), (6, 160, 3, 2, 3),
             (6, 320, 1, 1, 3)]
EFFICIENTNET = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
                (6, 320, 1, 1, 3)]
LITE = [(1.0, 1.0), (1.0, 1.1), (1.1, 1.2), (1.2, 1.4), (1.4, 1.8)]


def eights(channels):
    """torchvision's _make_divisible"""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near


def conv(inside, out, kernel, stride=1, groups=1):
    return nn.Conv2d(inside, out, kernel, stride, kernel // 2, groups=groups, bias=False)


def conv_norm(inside, out, kernel, stride=1, groups=1):
    return nn.Sequential(conv(inside, out, kernel, stride, groups), nn.BatchNorm2d(out), nn.ReLU6())


def strides(keys, stage, stride):
    """Small images keep their size in the stem and in the first stage that would halve it."""
    return 1 if keys["model.stem"] == "small" and stage <= 1 else stride


class InvertedResidual(nn.Module):
    def __init__(self, inside, out, expand, kernel, stride):
        super().__init__()
        wide = inside * expand
        self.add = stride == 1 and inside == out
        self.conv = nn.Sequential(*([conv_norm(inside, wide, 1)] if expand != 1 else []),
                                  conv_norm(wide, wide, kernel, stride, wide), conv(wide, out, 1), nn.BatchNorm2d(out))

    def forward(self, x):
        return x + self.conv(x) if self.add else self.conv(x)


class MobilenetV2(nn.Module):
    def __init__(self, keys, shape, classes):
        super().__init__()
        scale = keys["model.scale"]
        inside = eights(32 * scale)
        parts = [conv_norm(shape[2], inside, 3, strides(keys, 0, 2))]
        for stage, (expand, channels, repeats, stride, kernel) in enumerate(MOBILENET):
            out = eights(channels * scale)
            for i in range(repeats):
                parts.append(InvertedResidual(inside, out, expand, kernel, strides(keys, stage, stride) if i == 0 else 1))
                inside = out
        head = eights(1280 * max(1.0, scale))
        self.features = nn.Sequential(*parts, conv_norm(inside, head, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.0), nn.Linear(head, classes))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


class LiteBlock(nn.Module):
    def __init__(self, inside, out, expand, kernel, stride):
        super().__init__()
        wide = inside * expand
        self.add, self.expand = stride == 1 and inside == out, expand != 1
        if self.expand:
            self.conv_pw, self.bn1 = conv(inside, wide, 1), nn.BatchNorm2d(wide)
            self.conv_dw, self.bn2 = conv(wide, wide, kernel, stride, wide), nn.BatchNorm2d(wide)
            self.conv_pwl, self.bn3 = conv(wide, out, 1), nn.BatchNorm2d(out)
        else:
            self.conv_dw, self.bn1 = conv(wide, wide, kernel, stride, wide), nn.BatchNorm2d(wide)
            self.conv_pw, self.bn2 = conv(wide, out, 1), nn.BatchNorm2d(out)

    def forward(self, x):
        if self.expand:
            y = F.relu6(self.bn2(self.conv_dw(F.relu6(self.bn1(self.conv_pw(x))))))
            y = self.bn3(self.conv_pwl(y))
        else:
            y = self.bn2(self.conv_pw(F.relu6(self.bn1(self.conv_dw(x)))))
        return x + y if self.add else y


class Efficientnet(nn.Module):
    """The lite variants: ReLU6, no squeeze and excitation; stem, head and the depth of the outer stages do not grow."""

    def __init__(self, keys, shape, classes):
        super().__init__()
        scale, (width, depth) = keys["model.scale"], LITE[keys["model.variant"]]
        inside = eights(32 * scale)
        self.conv_stem, self.bn1 = conv(shape[2], inside, 3, strides(keys, 0, 2)), nn.BatchNorm2d(inside)
        self.blocks = nn.ModuleList()
        for stage, (expand, channels, repeats, stride, kernel) in enumerate(EFFICIENTNET):
            out, blocks = eights(channels * width * scale), []
            if stage not in (0, len(EFFICIENTNET) - 1):
                repeats = math.ceil(round(repeats * depth, 6))
            for i in range(repeats):
                blocks.append(LiteBlock(inside, out, expand, kernel, strides(keys, stage, stride) if i == 0 else 1))
                inside = out
            self.blocks.append(nn.Sequential(*blocks))
        head = eights(1280 * max(1.0, scale))
        self.conv_head, self.bn2 = conv(inside, head, 1), nn.BatchNorm2d(head)
        self.classifier = nn.Linear(head, classes)

    def forward(self, x):
        x = F.relu6(self.bn1(self.conv_stem(x)))
        for stage in self.blocks:
            x = stage(x)
        return self.classifier(F.relu6(self.bn2(self.conv_head(x))).mean((2, 3)))
