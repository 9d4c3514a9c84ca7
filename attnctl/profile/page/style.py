"""The page's style: one set of colours for light and one for dark, told apart by the reader's."""

from __future__ import annotations

COLOURS = 8
"""Backends that have a colour of their own; further ones begin anew, and names tell them apart."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #ffffff; --card: #f6f7f9; --text: #1b1f24; --quiet: #57606a; --line: #d0d7de;
  --c0: #0a67b8; --c1: #c2570c; --c2: #0d7a58; --c3: #a23a86;
  --c4: #8a6d00; --c5: #2b8fa6; --c6: #b3261e; --c7: #5b5bd6;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --card: #1d2228; --text: #e8ebef; --quiet: #a3adb8; --line: #39424c;
    --c0: #5cb0ff; --c1: #ff9f5a; --c2: #4fd1a5; --c3: #ec8ad0;
    --c4: #e0c04a; --c5: #6fd3ea; --c6: #ff8a80; --c7: #a5a5ff;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 78rem; padding: 1.5rem; background: var(--page);
  color: var(--text); font: 0.95rem/1.45 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 0 0 .25rem; }
h3 { font-size: .95rem; margin: 1.25rem 0 .4rem; }
p, dd { margin: 0 0 .4rem; }
a { color: inherit; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 0 0 1rem; }
dt, .quiet { color: var(--quiet); }
section { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: 1rem 1.25rem; margin: 1.25rem 0; }
.wide { overflow-x: auto; max-width: 100%; }
table { border-collapse: separate; border-spacing: 3px; }
.figures { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
.figures th, .figures td { text-align: left; padding: .2rem .6rem; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
.figures .number { text-align: right; }
.figures .picked { font-weight: 650; }
caption { text-align: left; font-weight: 650; padding: .5rem 0 .3rem; white-space: nowrap; }
th { font-weight: 600; color: var(--quiet); }
.map th { padding: .15rem .5rem; text-align: right; white-space: nowrap; }
.map thead th { text-align: center; }
.cell { min-width: 7.2rem; padding: .35rem .5rem; border-radius: .3rem; text-align: center;
  background: color-mix(in srgb, var(--own) var(--mix), var(--card));
  border-bottom: 3px solid var(--own); }
.cell b { display: block; font-size: .74rem; font-weight: 650; }
.cell span { font-size: .85rem; font-variant-numeric: tabular-nums; }
.cell small { display: block; font-size: .72rem; }
.empty { color: var(--quiet); text-align: center; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1rem; list-style: none; padding: 0;
  margin: .5rem 0; }
.legend i { display: inline-block; width: .8rem; height: .8rem; border-radius: .2rem;
  background: var(--own); vertical-align: -1px; margin-right: .35rem; }
.side { display: flex; flex-wrap: wrap; gap: .75rem 2.5rem; align-items: flex-start; }
figure { margin: 0; min-width: 0; }
svg { max-width: 100%; height: auto; }
svg text { fill: var(--text); font: 12px system-ui, sans-serif; }
svg .quiet { fill: var(--quiet); }
svg .track { fill: var(--line); opacity: .45; }
svg .bar { fill: var(--own); }
svg .range { stroke: var(--text); stroke-width: 1.5; }
svg .roof { stroke: var(--text); stroke-width: 1.5; stroke-dasharray: 4 3; }
details > summary { cursor: pointer; margin-top: 1rem; font-weight: 600; }
:focus-visible { outline: 2px solid var(--c0); outline-offset: 2px; }
@media print { body { max-width: none; } section { break-inside: avoid; } }
"""
