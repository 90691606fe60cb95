// A live figure tells its height; its frame grows to it, and does not shrink again.
addEventListener("message", ({ source, data }) => {
  for (const frame of document.querySelectorAll(".live iframe")) {
    const { explorer: height } = Object(data);
    if (frame.contentWindow !== source || !Number.isFinite(height)) continue;
    const tallest = Math.max(height + 2, Number(frame.dataset.height) || 0);
    frame.style.height = `${tallest}px`;
    frame.dataset.height = tallest;
  }
});
