"""A page opened in a headless browser: what it laid out, and in which colours."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Literal

NAMES = ("chromium", "chromium-browser", "google-chrome")
SCHEMES = {"dark": 0, "light": 1}
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
)
# put into a copy of the page: it writes what was rendered where --dump-dom shows it
SCRIPT = """<script>
addEventListener("load", () => {
  const seen = (node) => {
    const box = node.getBoundingClientRect(), style = getComputedStyle(node);
    const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    const rgb = (colour) => {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    return {text: node.innerText, left: box.left, top: box.top, width: box.width,
            height: box.height, ink: rgb(style.color), paper: rgb(style.backgroundColor),
            fill: rgb(style.fill)};
  };
  const all = (which) => [...document.querySelectorAll(which)].map(seen);
  const found = {cells: all("td.cell"), bars: all("rect.bar"), legend: all(".legend i"),
                 rows: document.querySelectorAll(".figures tbody tr").length,
                 page: seen(document.body),
                 overflow: document.documentElement.scrollWidth - innerWidth,
                 scripts: document.scripts.length};
  document.body.setAttribute("data-found", JSON.stringify(found));
});
</script>"""
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')


def look(page: Path, scheme: Literal["light", "dark"], width: int = 1200) -> Any:
    """What the browser rendered of the page's cells, bars and legend in this scheme."""
    text = page.read_text("utf-8")
    copy = page.with_name(f"{page.stem}-{scheme}-{width}.html")
    copy.write_text(POLICY.sub("", text).replace("</body>", f"{SCRIPT}</body>"), "utf-8")
    dom = _run(copy, scheme, width, "--dump-dom").stdout
    (found,) = re.findall(r'data-found="([^"]*)"', dom)
    return json.loads(found.replace("&quot;", '"').replace("&amp;", "&"))


def picture(page: Path, scheme: Literal["light", "dark"], target: Path) -> None:
    """A screenshot of the page as it was written."""
    _run(page, scheme, 1200, f"--screenshot={target}")


def _run(page: Path, scheme: str, width: int, what: str) -> subprocess.CompletedProcess[str]:
    browser = next((found for name in NAMES if (found := shutil.which(name))), None)
    assert browser is not None, "no chromium on the PATH: apt-get install chromium"
    return subprocess.run(
        [
            *(browser, *FLAGS, f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}"),
            *(f"--window-size={width},1400", f"--user-data-dir={page.parent / 'browser'}"),
            *("--virtual-time-budget=5000", what, page.as_uri()),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
