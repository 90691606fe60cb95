"""Screenshots of live figures, for the front page of the site and the README.

    python tests/tools/gallery.py

Opens the packed examples of docs/live in Chromium, and writes docs/figures/gallery.
"""

import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from explorer import page  # noqa: E402

FOLDER = ROOT / "docs/figures/gallery"
WIDTH, HEIGHT, SCALE = 360, 370, 2  # pixels on the page; pixels of the file for each
COLOURS = 64
# By name: the example, the choices of the reader, the panel; 0 for the whole page.
VIEWS = {
    "alignment": ("bahdanau_nmt", "view=map&query=5&key=10", 1),
    "ribbons": ("luong_local_p", "view=ribbons&query=5", 1),
    "heads": ("transformer_nmt", "view=heads", 1),
    "difference": ("two_scores", "difference=true&query=5", 3),
    "question": ("vqa_scenes", "query=0", 1),
    "tour": ("pointer_tsp", "query=5", 1),
    "glimpses": ("dram_digits", "query=4", 1),
    "memory": ("memory_network_qa", "query=2&key=3", 1),
    "page": ("bahdanau_nmt", "query=5&key=10", 0),
}
# Sizes at which the labels of wide views have the size of those of the others.
SIZES = "overImage.SIDE = 290; everyHead.SIDE = 60; explorer.update();"


def screenshot(browser: Browser, name: str, fragment: str, panel: int) -> Image.Image:
    """Returns a panel of a page, in the middle of an image of the common size."""
    width = WIDTH + 74 if panel else 720
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "page.html")
        data = (ROOT / f"docs/live/{name}.zlib").read_bytes()
        path.write_text(page.html_of(data), "utf-8")
        viewport = {"width": width, "height": 900 if panel else 600}
        opened = browser.new_page(viewport=viewport, device_scale_factor=SCALE)
        opened.goto(f"file://{path}#{fragment}")
        opened.wait_for_selector("body[data-ready]")
        opened.evaluate(SIZES)
        if panel:
            canvas = opened.locator(f".panel:nth-child({panel}) canvas").first
            content = canvas.screenshot()
        else:
            content = opened.screenshot(full_page=True)
        opened.close()
    view = Image.open(io.BytesIO(content)).convert("RGB")
    if not panel:
        return view.quantize(COLOURS)
    if view.width > WIDTH * SCALE or view.height > HEIGHT * SCALE:
        raise ValueError(f"{name} has {view.size}: does not fit")
    image = Image.new("RGB", (WIDTH * SCALE, HEIGHT * SCALE), "white")
    space = image.width - view.width, image.height - view.height
    image.paste(view, (space[0] // 2, space[1] // 2))
    return image.quantize(COLOURS)


def main() -> None:
    """Writes the screenshots."""
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for name, view in VIEWS.items():
            path = FOLDER / f"{name}.png"
            screenshot(browser, *view).save(path, optimize=True)
            print(f"{path.relative_to(ROOT)} ({path.stat().st_size / 1000:.0f} kB)")


if __name__ == "__main__":
    main()
