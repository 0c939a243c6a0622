// Draws every chart from its Vega-Lite specification in the colours of the page, again when those change.
"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function config() {
    const [ink, soft, grid] = [colour("--ink"), colour("--soft"), colour("--grid")];
    const narrow = window.innerWidth < 640;
    return {
      background: "transparent",
      font: "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif",
      axis: { labelColor: soft, titleColor: soft, gridColor: grid, domainColor: grid, tickColor: grid,
              labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", labelOverlap: true,
              tickCount: narrow ? 4 : 8 },
      legend: { labelColor: ink, titleColor: soft, labelFontSize: 12, titleFontSize: 12, symbolSize: 90,
                symbolBaseFillColor: soft, symbolBaseStrokeColor: soft,
                columns: narrow ? 2 : 5, labelLimit: 180,
                layout: { top: { anchor: "start", direction: narrow ? "vertical" : "horizontal" } } },
      view: { stroke: null }, text: { color: ink },
    };
  }

  async function draw() {
    const drawn = Object.entries(figures).map(([name, spec]) => {
      const shown = structuredClone(spec);
      shown.config = { ...shown.config, ...config() };
      return vegaEmbed(document.getElementById("chart-" + name), shown, { renderer: "svg", actions: false });
    });
    await Promise.all(drawn);
    document.documentElement.dataset.charts = "drawn";
  }

  dark.addEventListener("change", draw);
  draw();
})();
