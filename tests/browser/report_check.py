#!/usr/bin/env python3
"""Reports of small runs in a real browser: `report_check.py LATHE FOLDER`. Trains a classifier, many classes with long names, a
regression, masks, images and text on generated data, a run that accumulates, one on ranks and one that diverges, opens each report.html and the page of `lathe runs --curves` in headless Chromium, wide and narrow,
light and dark, and checks what a person would see at once: nothing is said on the console, nothing is fetched, nothing is
wider than the screen, every chart and picture shows something, every label is inside of its chart, text can be read. The
pictures stay in FOLDER.
"""
import json
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from chromium import Chromium  # noqa: E402

SMALL = {"data.source": "synthetic", "data.train_samples": 96, "data.test_samples": 64, "train.batch_size": 32, "train.steps": 12,
         "train.eval_every": 1, "train.log_every": 1, "device": "cpu"}
IMAGES = SMALL | {"data.shape": "[16,16,3]", "model.family": "unet", "model.channels": "[4,8]"}
RUNS = {
    "classes": ("fashion_mnist", SMALL | {"model.channels": "[4,8]", "model.dense": 16}),
    "values": ("mlp", SMALL | {"data.target": "value", "model.hidden": "[16]", "optimizer.lr": 0.01}),
    "masks": ("mlp", IMAGES | {"data.target": "mask", "data.classes": 3}),
    "images": ("mlp", IMAGES | {"data.target": "image", "data.noise": 20}),
    "accumulated": ("mlp", SMALL | {"model.hidden": "[16]", "train.batch_size": 8, "train.accumulate": 4, "train.steps": 3}),
    "ranks": ("mlp", SMALL | {"model.hidden": "[64,64]", "device.threads": 1}, ["--ranks", "3", "--profile", "--profile-steps", "6"]),
    "diverged": ("mlp", SMALL | {"model.hidden": "[16,16,16,16,16,16]", "optimizer.lr": 1000}),
    "text": ("gpt_tiny", {"data.path": "", "model.layers": 1, "model.width": 32, "model.heads": 2, "model.sequence": 32,
                          "train.batch_size": 8, "train.steps": 30, "data.test_samples": 16, "train.log_every": 1, "device": "cpu"}),
}
WIDTHS = {"desktop": (1280, 900), "phone": (390, 844)}

# Everything that is wrong with the page as it is drawn, as lines of text.
LOOK = r"""(() => {
  const wrong = [], width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) wrong.push(`wider than the screen: ${document.documentElement.scrollWidth} of ${width}`);
  const name = e => (e.closest('section')?.querySelector('h2')?.textContent ?? 'page') + ': ' + e.tagName + ' "' + e.textContent.slice(0, 40) + '"';
  const solid = c => { const n = (c.match(/[\d.]+/g) ?? []).map(Number); return n.length > 3 && n[3] === 0 ? null : n; };
  const ground = e => { for (; e; e = e.parentElement) { const c = solid(getComputedStyle(e).backgroundColor); if (c) return c; } return [255, 255, 255]; };
  const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
                      .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)]; return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05); };
  for (const e of document.querySelectorAll('h1,h2,p,td,th,b,span,figcaption,pre,svg text')) {
    if (!e.textContent.trim()) continue;
    const inSvg = e.ownerSVGElement, box = e.getBoundingClientRect();
    if (!inSvg && !e.closest('.scroll') && box.right > width + 1) wrong.push(name(e) + ' ends beyond the screen');
    const ratio = contrast(solid(inSvg ? getComputedStyle(e).fill : getComputedStyle(e).color), ground(inSvg ? inSvg.parentElement : e));
    if (ratio < 3) wrong.push(`${name(e)} has a contrast of ${ratio.toFixed(1)}`);
    if (inSvg) {
      const frame = inSvg.getBoundingClientRect();
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        wrong.push(name(e) + ' is cut off');
      if (box.height < 8) wrong.push(`${name(e)} is ${box.height.toFixed(1)} pixels high`);
    }
  }
  for (const e of document.querySelectorAll('svg')) {
    const level = 'text:not([transform])';  // the boxes of slanted ones lie on each other where the letters do not
    const texts = [...e.querySelectorAll(level)].map(t => [t, t.getBoundingClientRect()]);
    for (let i = 0; i < texts.length; ++i)
      for (let k = i + 1; k < texts.length; ++k) {
        const [a, b] = [texts[i][1], texts[k][1]];
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left), down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 2 && down > 0.4 * Math.min(a.height, b.height)) wrong.push(`${name(texts[i][0])} and "${texts[k][0].textContent}" overlap`);
      }
    const marks = [...e.querySelectorAll('polyline,polygon,path,circle,rect')].filter(m => {
      const b = m.getBoundingClientRect(), s = getComputedStyle(m);
      return b.width + b.height > 3 && (s.fill !== 'none' || s.stroke !== 'none') && !m.classList.contains('grid');
    });
    if (e.getBoundingClientRect().height < 60 || marks.length === 0) wrong.push(name(e) + ': an empty chart');
  }
  for (const e of document.querySelectorAll('canvas')) {
    const p = e.getContext('2d').getImageData(0, 0, e.width, e.height).data;
    if (p.every((v, i) => v === p[i % 4])) wrong.push(name(e) + ': an empty canvas');
  }
  for (const e of document.querySelectorAll('img'))
    if (!e.complete || e.naturalWidth === 0 || e.getBoundingClientRect().width < 20) wrong.push(name(e) + ': a picture that does not show');
  for (const e of document.querySelectorAll('section'))
    if (e.getBoundingClientRect().height < 40) wrong.push(name(e) + ': an empty part');
  return wrong;
})()"""


def train_table(lathe, folder):
    """22 classes with long names, of which not every letter is a byte."""
    with open(folder / "table.csv", "w") as table:
        table.write("a,b,kind\n")
        for i in range(660):
            table.write(f"{i % 22},{i * 7 % 31},Größenklasse WM {'abcdefghijklmnopqrstuv'[i % 22]} mit langem Namen\n")
    (folder / "table.toml").write_text(f'name = "table"\ndevice = "cpu"\n[data]\nsource = "csv"\nlabel = "kind"\nclasses = 22\npath = "{folder / "table.csv"}"\n'
                                       '[model]\nfamily = "mlp"\nhidden = [16]\n[train]\nsteps = 100\nbatch_size = 32\n')
    subprocess.run([lathe, "train", folder / "table.toml", "--out", folder / "runs" / "table"], check=True, stdout=subprocess.DEVNULL)


def train(lathe, folder):
    for name, (recipe, keys, *more) in RUNS.items():
        args = [lathe, "train", recipe, "--out", folder / "runs" / name, *(more[0] if more else [])]
        for key, value in keys.items():
            args += ["--set", f"{key}={value}"]
        code = subprocess.run([str(a) for a in args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
        assert code == (65 if name == "diverged" else 0), (name, code)
    train_table(lathe, folder)
    # A run whose name and recipe are long, as those of sweeps are.
    long = folder / "runs" / "gpt_tiny-2026-01-01_120000-a-long-name-of-a-sweep-that-says-it-all"
    shutil.copytree(folder / "runs" / "text", long)
    text = (long / "recipe.toml").read_text()
    (long / "recipe.toml").write_text(text.replace('path = ""', 'path = "/a/path/that/is/rather/long/and/has/no/space/anywhere/in/it"', 1))
    listed = subprocess.run([lathe, "runs", folder / "runs", "--curves", folder / "runs.html"], check=True, capture_output=True, text=True).stdout
    assert "unreadable" not in listed and max(map(len, listed.splitlines())) < 300, listed
    return {name: folder / "runs" / name / "report.html" for name in [*RUNS, "table"]} | {"runs": folder / "runs.html"}


def complaints(url, events):
    """What the browser said or asked for beside the page itself."""
    for e in events:
        method, params = e.get("method"), e.get("params", {})
        if method == "Runtime.exceptionThrown":
            yield "an exception: " + json.dumps(params)[:300]
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            yield "on the console: " + json.dumps(params["args"])[:300]
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            yield "on the console: " + params["entry"]["text"]
        elif method == "Network.requestWillBeSent":
            asked = params["request"]["url"]
            if asked != url and not asked.startswith("data:"):
                yield "a request: " + asked


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    lathe, folder = (pathlib.Path(a).resolve() for a in sys.argv[1:])
    if not shutil.which("chromium"):
        sys.exit("needs chromium: tools/setup all")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pages, bad = train(lathe, folder), 0
    with Chromium() as browser:
        # The check itself: a page with each fault is not skipped.
        broken = folder / "broken.html"
        broken.write_text("<body style='background:#fff'><p style='color:#eee;width:3000px'>x</p><svg width=99 height=99></svg><img src='none.png'>"
                          "<script>console.error('y')</script>")
        found = [*complaints(broken.as_uri(), browser.open(broken.as_uri(), 390, 844, False)), *browser.evaluate(LOOK)]
        for part in ("on the console", "a request", "wider than", "an empty chart", "does not show", "contrast"):
            if not any(part in line for line in found):
                sys.exit(f"report_check.py: does not see \"{part}\" in a page that has it: {found}")
        for name, page in pages.items():
            for screen, (width, height) in WIDTHS.items():
                for dark in (False, True):
                    events = browser.open(page.as_uri(), width, height, dark)
                    lines = [*complaints(page.as_uri(), events), *browser.evaluate(LOOK)]
                    shot = f"{name}-{screen}-{'dark' if dark else 'light'}.png"
                    (folder / shot).write_bytes(browser.picture())
                    for line in lines:
                        print(f"{shot}: {line}")
                    bad += len(lines)
    print(f"{4 * len(pages)} pictures in {folder}, {bad} faults")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
