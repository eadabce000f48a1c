"""How ``/docs`` looks. It stands in the page itself, and its hash in the page's content security policy."""

STYLE = """
:root { color-scheme: light dark; --ink: #1d2433; --dim: #566074; --paper: #fff; --soft: #f4f6f9; --line: #d8dee8; --link: #1f4fbf; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8f0; --dim: #a3adc0; --paper: #14181f; --soft: #1c222c; --line: #343d4c; --link: #8fb4ff; }
}
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; }
body { margin: 0; color: var(--ink); background: var(--paper); font: 16px/1.55 system-ui, sans-serif; overflow-wrap: break-word; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
code, pre { font: 0.875em/1.5 ui-monospace, "Liberation Mono", Menlo, Consolas, monospace; }
code { background: var(--soft); padding: 0.1em 0.3em; border-radius: 4px; overflow-wrap: anywhere; }
td:first-child code { overflow-wrap: break-word; }
pre { background: var(--soft); border: 1px solid var(--line); border-radius: 6px; padding: 0.75rem 1rem; overflow-x: auto; }
pre code { background: none; padding: 0; overflow-wrap: normal; }
.skip { position: absolute; left: -999rem; }
.skip:focus { left: 1rem; top: 1rem; background: var(--paper); padding: 0.5rem 1rem; z-index: 1; }
.layout { display: grid; grid-template-columns: minmax(15rem, 21rem) minmax(0, 1fr); max-width: 96rem; margin: 0 auto; }
nav { position: sticky; top: 0; max-height: 100vh; overflow-y: auto; padding: 1.5rem 1rem; border-right: 1px solid var(--line); font-size: 0.9rem; }
nav h2 { font-size: 0.9rem; margin: 1.25rem 0 0.25rem; }
nav ul { list-style: none; margin: 0; padding: 0; }
nav li { padding: 0.15rem 0; }
nav a { text-decoration: none; }
nav a:hover { text-decoration: underline; }
main { padding: 1.5rem 2rem 6rem; min-width: 0; }
h1, h2, h3, h4 { line-height: 1.25; }
h2 { margin-top: 3rem; padding-bottom: 0.25rem; border-bottom: 2px solid var(--line); }
h4 { margin: 1.25rem 0 0.25rem; }
article { margin: 1.5rem 0; padding: 0.25rem 1.25rem 1rem; border: 1px solid var(--line); border-radius: 8px; }
.method { font-weight: 700; letter-spacing: 0.03em; }
.dim { color: var(--dim); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.92rem; }
th, td { text-align: left; vertical-align: top; padding: 0.4rem 0.75rem 0.4rem 0; border-bottom: 1px solid var(--line); }
td p:first-child { margin-top: 0; }
td p:last-child { margin-bottom: 0; }
summary { cursor: pointer; padding: 0.25rem 0; }
@media (max-width: 60rem) {
  .layout { display: block; }
  nav { position: static; max-height: none; border-right: 0; border-bottom: 1px solid var(--line); }
  main { padding: 1rem; }
}
@media print { nav { display: none; } .layout { display: block; } }
"""
