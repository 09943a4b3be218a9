/* Puts the page together. */
'use strict';

/* Calls load(id) for the run that is looked at, when its section comes near the window: a trace and
 * a memory map are large. */
T.lazy = (name, load) => {
  let near = false, wanted = false;
  const mark = T.el('div', { class: 'lazy', 'aria-hidden': 'true' });
  T.id(name).before(mark);
  const go = () => {
    if (!near || !wanted) return;
    wanted = false;
    load(T.state.focus).catch((error) => T.emit('failed', error));
  };
  new IntersectionObserver((entries) => {
    near = entries[entries.length - 1].isIntersecting;
    go();
  }, { rootMargin: '900px' }).observe(mark);
  T.on('focus', () => {
    wanted = true;
    T.id(name).hidden = true;
    go();
  });
};

/* With several runs selected: whose ranks, memory and events are shown. */
T.focusBar = () => {
  const bar = T.id('focus-bar'), ids = T.state.selected;
  if (ids.length < 2) {
    T.fill(bar);
    return;
  }
  T.fill(bar, T.el('span', { class: 'soft' }, 'Details of'), ids.map((id, at) =>
    T.el('button', { type: 'button', class: 'small', 'data-run': id, onclick: () => T.setFocus(id) }, T.swatch(at), T.nameOf(id))));
};

T.focusMark = () => {
  for (const button of T.id('focus-bar').querySelectorAll('button'))
    button.setAttribute('aria-pressed', String(button.dataset.run === T.state.focus));
};

T.title = () => {
  const run = T.runOf(T.state.focus);
  document.title = run ? `${T.nameOf(run.id)} · ${run.state} · Trireme` : 'Trireme';
};

T.start = async () => {
  T.data.begin();
  T.theme.button(T.id('theme'));
  const asked = T.recall();
  T.runs.begin();
  T.curves.begin();
  T.differ.begin();
  T.ranks.begin();
  T.details.begin();
  T.trace.begin();
  T.map.begin();
  T.on('selected', T.focusBar);
  T.on('focus', T.focusMark);
  T.on('focus', T.title);
  T.on('runs', T.title);
  T.id('curves').hidden = true;
  if (T.data.held) {
    document.body.classList.add('report');
    T.id('view').hidden = true;
    T.tell(T.id('link'), 'report');
  }
  await T.runs.load().catch(T.live.failed);
  const wanted = asked.ids.filter((id) => T.runOf(id));
  const first = T.data.held ? T.state.runs.map((run) => run.id) : T.state.runs.slice(0, 1).map((run) => run.id);
  T.live.begin();
  T.select(wanted.length ? wanted : first, asked.focus);
};

T.start();
