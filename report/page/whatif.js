// The what-if panel: the cost model of report/model.py and the choice of report/decision.py, recomputed in the page.
// A test holds each figure against Python's.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("whatif-data").textContent);
  const SAME_COST = 0.01, SECONDS_PER_HOUR = 3600, HOURS_PER_MONTH = 730;

  const rentPerQuery = (perHour, qps) => perHour / SECONDS_PER_HOUR / qps;
  const replicas = (peak, qps, share) => Math.max(1, Math.ceil(peak / (qps * share) - 1e-9));
  const breakEven = (fixed, perQuery) => fixed / perQuery;
  const payback = (extra, perQuery, basePerQuery) =>
    basePerQuery > perQuery ? Math.max(0, extra) / (basePerQuery - perQuery) : null;

  // The highest measured load within the SLO; the confirmed capacity at the SLO that was searched for.
  function qpsWithin(row, sloS) {
    if (sloS === data.slo_s) return row.max_qps;
    const seen = row.points.filter(([, p99]) => p99 <= sloS).map(([qps]) => qps);
    const best = seen.length ? Math.max(...seen) : null;
    if (row.max_qps === null) return best;
    if (sloS > data.slo_s) {
      const broke = row.points.filter(([, p99]) => p99 > data.slo_s && p99 <= sloS).map(([qps]) => qps);
      return Math.max(row.max_qps, ...broke);
    }
    return best === null ? null : Math.min(row.max_qps, best);
  }

  function assess(row, set) {
    const qps = qpsWithin(row, set.slo_s);
    const perHour = row.usd_per_hour * set.price;
    if (qps === null) return { row, qps, why: "no measured load keeps this SLO" };
    const num = replicas(set.mean * set.peak, qps, set.share);
    const monthly = perHour * num * HOURS_PER_MONTH;
    const found = {
      row, qps, num, monthly,
      perQuery: rentPerQuery(perHour, qps),
      atTraffic: rentPerQuery(perHour * num, set.mean),
      utilisation: set.mean / (num * qps),
      total: (row.made_usd ?? 0) + perHour * num * 24 * set.days,
      why: null,
    };
    if (row.accuracy < set.floor) found.why = "below the accuracy floor";
    else if (data.budget !== null && monthly > data.budget) found.why = "over the budget";
    return found;
  }

  function choose(all) {
    const fit = all.filter((each) => each.why === null);
    if (!fit.length) return null;
    const limit = Math.min(...fit.map((each) => each.total)) * (1 + SAME_COST);
    const better = (a, b) => b.row.accuracy - a.row.accuracy || b.qps - a.qps || a.total - b.total;
    return fit.filter((each) => each.total <= limit).sort(better)[0];
  }

  function crossings(each, all) {
    if (each.perQuery === undefined || each.row.made_usd === null) return {};
    const base = all.find((other) => other.row.variant === against.value && other.row.profile === each.row.profile);
    const known = base && base !== each && base.perQuery !== undefined && base.row.made_usd !== null;
    return {
      even: breakEven(each.row.made_usd, each.perQuery),
      back: known ? payback(each.row.made_usd - base.row.made_usd, each.perQuery, base.perQuery) : null,
    };
  }

  const three = (value) => Number(value.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 });
  const show = {
    usd: (value) => "$" + three(value),
    count: (value) => value >= 1e9 ? three(value / 1e9) + " billion" : value >= 1e6 ? three(value / 1e6) + " million" : three(value),
    number: three,
    share: (value) => (value * 100).toFixed(0) + "%",
  };

  function cell(line, name, value, form) {
    const made = line.insertCell();
    made.dataset.name = name;
    if (value === null || value === undefined) { made.textContent = "–"; return; }
    made.dataset.value = value;
    made.textContent = show[form](value);
  }

  function render() {
    const set = settings();
    const all = data.rows.map((row) => assess(row, set));
    const chosen = choose(all);
    const body = document.querySelector("#whatif-rows");
    body.replaceChildren();
    for (const each of all) {
      const line = body.insertRow();
      line.dataset.row = each.row.variant + " " + each.row.profile;
      if (each === chosen) line.className = "chosen";
      const head = document.createElement("th");
      head.scope = "row";
      head.textContent = each.row.variant + " · " + each.row.profile;
      line.append(head);
      const { even, back } = crossings(each, all);
      cell(line, "qps", each.qps, "number");
      cell(line, "replicas", each.num, "number");
      cell(line, "utilisation", each.utilisation, "share");
      cell(line, "monthly", each.monthly, "usd");
      cell(line, "at_traffic", each.atTraffic === undefined ? null : each.atTraffic * 1e6, "usd");
      cell(line, "even", even, "count");
      cell(line, "back", back, "count");
      cell(line, "total", each.total, "usd");
      const why = line.insertCell();
      why.className = "words";
      why.textContent = each === chosen ? "the choice" : each.why ?? "dearer, or less accurate at the same cost";
    }
    const said = document.getElementById("whatif-said");
    said.dataset.chosen = chosen ? chosen.row.variant + " " + chosen.row.profile : "";
    said.textContent = chosen
      ? `Deploy ${chosen.row.variant} on ${chosen.row.profile}: ${chosen.num} replica${chosen.num > 1 ? "s" : ""}, ` +
        `${show.usd(chosen.monthly)} a month, ${show.share(chosen.utilisation)} busy on average.`
      : "Nothing qualifies.";
  }

  const against = document.getElementById("whatif-against");
  against.addEventListener("change", render);

  // Levers hold the exact start value until they are moved; a logarithmic one holds the power of ten.
  const levers = [...document.querySelectorAll("#whatif input")];
  function valueOf(lever) {
    if (lever.value === lever.defaultValue) return Number(lever.dataset.exact);
    return lever.dataset.log ? 10 ** Number(lever.value) : Number(lever.value);
  }
  function settings() {
    const set = {};
    for (const lever of levers) {
      const value = valueOf(lever);
      set[lever.name] = value * Number(lever.dataset.unit ?? 1);
      lever.parentElement.querySelector("output").textContent = three(value) + (lever.dataset.suffix ?? "");
    }
    return set;
  }

  for (const lever of levers) {
    lever.defaultValue = lever.value;
    lever.addEventListener("input", render);
  }
  document.getElementById("whatif-reset").addEventListener("click", () => {
    for (const lever of levers) lever.value = lever.defaultValue;
    for (const option of against.options) option.selected = option.defaultSelected;
    render();
  });
  render();
})();
