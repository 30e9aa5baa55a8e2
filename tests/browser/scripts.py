"""What is asked of a page: selectors, and functions that the browser runs in it."""

from __future__ import annotations

OUTPUTS = ":is(.jp-OutputArea-output, .jp-RenderedMarkdown)"
WORDS = ".minilayup-words .widget-html-content"  # where a figure says what it shows
STATE = ":scope > :last-child > :last-child input"  # of a figure: the line with its settings
NO_NAME = "Image"  # what JupyterLab 4.6 calls an <img> without alt text
OURS = ":is(.minilayup-figure, .minilayup-live)"


OPENED = """path => {
  const dialog = document.querySelector('.jp-Dialog'), panel = window.jupyterapp?.shell?.currentWidget;
  if (dialog) return dialog.textContent;
  return panel?.context?.path === path && panel.context.isReady
    && panel.sessionContext.session?.kernel?.status === 'idle' && 'opened';
}"""

RUN = """() => {
  const panel = jupyterapp.shell.currentWidget;
  window.minilayupTest = {panel, complaints: [], ran: null, changed: 0};
  new MutationObserver(() => { minilayupTest.changed = performance.now(); }).observe(
    panel.content.node, {childList: true, characterData: true, subtree: true});
  panel.sessionContext.iopubMessage.connect((_, {header, content}) => {
    if (header.msg_type === 'error') minilayupTest.complaints.push(content.traceback.join('\\n'));
    if (header.msg_type === 'stream' && content.name === 'stderr') minilayupTest.complaints.push(content.text);
  });
  jupyterapp.commands.execute('notebook:run-all-cells').then(ran => { minilayupTest.ran = String(ran); });
}"""

IDLE = """() => minilayupTest.panel.sessionContext.session.kernel.status === 'idle'
  && performance.now() - minilayupTest.changed > 200"""

NOT_RUN = """() => minilayupTest.panel.content.widgets.map(cell => cell.model).filter(
  cell => cell.type === 'code' && cell.sharedModel.source.trim() && !cell.executionCount
).map(cell => 'this cell was not run: ' + cell.sharedModel.source)"""

TRACEBACKS = """() => [
  ...minilayupTest.panel.content.widgets.filter(cell => cell.model.type === 'code').flatMap(
    cell => cell.model.outputs.toJSON().filter(output => output.output_type === 'error').map(
      output => `${output.ename}: ${output.evalue}`)),
  ...[...document.querySelectorAll('.jp-OutputArea-output')].map(output => output.textContent).filter(
    text => /Traceback .most recent call last|Javascript Error/.test(text)),
]"""

WATCH = """figure => {
  const seen = {changed: 0, released: 0};
  seen.observer = new MutationObserver(() => { seen.changed = performance.now(); });
  seen.observer.observe(figure, {childList: true, characterData: true, subtree: true});
  window.addEventListener('keyup', () => { seen.released = performance.now(); }, true);
  minilayupTest.seen = seen;
}"""

QUIET_FOR_HALF_A_SECOND = """() => minilayupTest.panel.sessionContext.session.kernel.status === 'idle'
  && performance.now() - Math.max(minilayupTest.seen.changed, minilayupTest.seen.released) > 500"""

SETTLED = """() => {
  minilayupTest.seen.observer.disconnect();
  return minilayupTest.seen.changed ? minilayupTest.seen.changed - minilayupTest.seen.released : null;
}"""

CUT_OFF = """figure => {
  const area = figure.closest('.jp-OutputArea-output').getBoundingClientRect(), faults = [];
  for (const part of figure.querySelectorAll('*')) {
    const box = part.getBoundingClientRect();
    if (!box.width || part.parentElement.closest('svg, .noUi-base')) continue;
    if (box.right > area.right + 1 || box.left < area.left - 1)
      faults.push(`${part.localName}.${part.classList} from ${box.left} to ${box.right}, `
        + `in an area from ${area.left} to ${area.right}`);
    if (part.matches('.noUi-base, input, select, svg') && box.width < 40)
      faults.push(`${part.localName}.${part.classList} is ${box.width} pixels wide`);
  }
  return faults;
}"""

INKS = """figure => {
  const opaque = colour => !/^transparent$|, 0\\)$/.test(colour), found = new Set();
  for (const words of figure.querySelectorAll('svg text, .minilayup-words, label, b')) {
    let behind = words;
    while (behind.parentElement && !(behind instanceof HTMLElement && opaque(getComputedStyle(behind).backgroundColor)))
      behind = behind.parentElement;
    const look = getComputedStyle(words), ink = words.closest('svg') ? look.fill : look.color;
    found.add(JSON.stringify([ink, getComputedStyle(behind).backgroundColor]));
  }
  return [...found].map(JSON.parse);
}"""
