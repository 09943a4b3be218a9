/* The frame of `trireme view`: tabs, the address behind #, controls, and stepping. Each tab is a row
 * of T.view.tabs, made by a file of its own: {name, title, build(panel), show(values)}. */
'use strict';

T.view = { tabs: [], now: null, values: {} };

/* ---- documents ---- */

/* Resolves to the document; an error's message is the sentence of the server. */
T.view.get = async (path, values) => {
  const words = Object.entries(values || {}).filter(([, v]) => v !== '' && v !== null && v !== undefined);
  const query = words.map(([k, v]) => `${k}=${encodeURIComponent(v).replace(/%2C/g, ',').replace(/%3A/g, ':')}`).join('&');
  const answer = await fetch(path + (query ? '?' + query : ''), { credentials: 'same-origin' });
  const document_ = await answer.json().catch(() => null);
  if (answer.ok && document_) return document_;
  throw new Error(document_ && document_.error ? document_.error : `no answer to ${path}: status ${answer.status}`);
};

/* Of several questions asked one after the other only the newest answer counts. */
T.view.latest = () => {
  let newest = 0;
  return async (promise, take) => {
    const own = ++newest;
    try {
      const answer = await promise;
      if (own !== newest) return;
      T.view.trouble('');
      take(answer);
    } catch (error) {
      if (own === newest) T.view.trouble(error.message);
    }
  };
};

T.view.trouble = (text) => {
  const place = T.id('trouble');
  place.hidden = !text;
  T.tell(place, text);
};

/* ---- the address ---- */

/* "#schedule?name=zb-v&p=4": a picture can be sent to somebody. */
T.view.read = () => {
  const [name, query] = location.hash.slice(1).split('?');
  const values = {};
  for (const [key, value] of new URLSearchParams(query || '')) values[key] = value;
  return [name, values];
};

T.view.write = () => {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(T.view.values[T.view.now.name]))
    if (value !== '' && value !== null && value !== undefined) words.set(key, value);
  const query = words.toString();
  const hash = '#' + T.view.now.name + (query ? '?' + query : '');
  if (hash.length < 2000 && hash !== location.hash) history.replaceState(null, '', hash);
};

/* ---- tabs ---- */

T.view.open = (tab, focus) => {
  T.view.now = tab;
  for (const other of T.view.tabs) {
    const chosen = other === tab;
    other.button.setAttribute('aria-selected', chosen);
    other.button.tabIndex = chosen ? 0 : -1;
    other.panel.hidden = !chosen;
  }
  if (focus) tab.button.focus();
  if (!tab.built) {
    tab.built = true;
    tab.build(tab.panel);
  }
  T.view.trouble('');
  document.title = `${tab.title} – Trireme view`;
  tab.show(T.view.values[tab.name]);
  T.view.write();
};

T.view.tabKey = (event) => {
  const at = T.view.tabs.indexOf(T.view.now), num = T.view.tabs.length;
  const to = { ArrowRight: (at + 1) % num, ArrowLeft: (at + num - 1) % num, Home: 0, End: num - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  event.stopPropagation();
  T.view.open(T.view.tabs[to], true);
};

T.view.makeTabs = () => {
  for (const tab of T.view.tabs) {
    T.view.values[tab.name] = {};
    tab.panel = T.el('section', { id: 'panel-' + tab.name, role: 'tabpanel', 'aria-labelledby': 'tab-' + tab.name, hidden: true });
    tab.button = T.el('button', {
      id: 'tab-' + tab.name, type: 'button', role: 'tab', 'aria-controls': 'panel-' + tab.name,
      onclick: () => T.view.open(tab), onkeydown: T.view.tabKey,
    }, tab.title);
    T.id('tabs').append(tab.button);
    T.id('panels').append(tab.panel);
  }
};

T.view.begin = () => {
  T.theme.button(T.id('theme'));
  T.id('runs').hidden = !location.pathname.endsWith('/view'); /* of trireme watch, which has them */
  T.view.makeTabs();
  const follow = () => {
    const [name, values] = T.view.read();
    const tab = T.view.tabs.find((t) => t.name === name) || T.view.tabs[0];
    T.view.values[tab.name] = values;
    T.view.open(tab);
  };
  addEventListener('hashchange', follow);
  document.addEventListener('keydown', (event) => {
    const free = !event.defaultPrevented && !event.ctrlKey && !event.metaKey && !event.altKey;
    if (free && T.view.now.key && !T.view.typing(event.target)) T.view.now.key(event);
  });
  follow();
};

/* Keys are a field's own while somebody fills it in. */
T.view.typing = (element) => element.matches('input:not([type=checkbox]), select, textarea');

/* ---- controls ---- */

/* A field with its name: {key, title, kind: number|select|text|check, least, most, step, options,
 * help}. Options are texts, or [value, text]. */
T.view.field = (row, take) => {
  const told = { 'data-key': row.key, title: row.help || null };
  let input;
  if (row.kind === 'select') {
    input = T.el('select', told);
    T.view.options(input, row.options || []);
  } else if (row.kind === 'check') {
    input = T.el('input', { ...told, type: 'checkbox' });
  } else {
    input = T.el('input', {
      ...told, type: row.kind, min: row.least, max: row.most, step: row.step || (row.kind === 'number' ? 1 : null),
      placeholder: row.placeholder, inputmode: row.kind === 'number' ? 'decimal' : null, spellcheck: 'false',
    });
  }
  input.addEventListener('change', () => take(row.key, row.kind === 'check' ? (input.checked ? '1' : '') : input.value));
  return T.el('label', { class: 'field' + (row.kind === 'check' ? ' check' : ''), title: row.help || null }, T.el('span', {}, row.title), input);
};

T.view.options = (select, options) => {
  const chosen = select.value;
  T.fill(select, options.map((o) => T.el('option', { value: Array.isArray(o) ? o[0] : o }, Array.isArray(o) ? o[1] : o)));
  if ([...select.options].some((o) => o.value === chosen)) select.value = chosen;
};

T.view.fields = (label, rows, take) =>
  T.el('div', { class: 'fields', role: 'group', 'aria-label': label }, rows.map((row) => T.view.field(row, take)));

/* Shows values in fields, without telling anybody. */
T.view.fill = (panel, values) => {
  for (const input of panel.querySelectorAll('[data-key]')) {
    const value = values[input.dataset.key];
    if (input.type === 'checkbox') input.checked = value === '1' || value === true;
    else if (document.activeElement !== input || input.tagName === 'SELECT') input.value = value === undefined || value === null ? '' : value;
  }
};

/* ---- stepping ---- */

/* Buttons and a slider over 0..num: {element, set(at, num), go(at), key(event)}. */
T.view.stepper = (what, take) => {
  const self = { at: 0, num: 0, timer: 0 };
  const slider = T.el('input', { type: 'range', min: 0, max: 0, value: 0, 'aria-label': what, oninput: () => self.go(Number(slider.value)) });
  const told = T.el('output', { class: 'soft steps' });
  const button = (text, label, act) => T.el('button', { type: 'button', 'aria-label': label, title: label, onclick: act }, text);
  const play = T.el('button', { type: 'button', class: 'play', onclick: () => self.play() }, 'play');
  self.element = T.el('div', { class: 'stepper', role: 'group', 'aria-label': what },
    button('«', 'to the beginning', () => self.go(0)), button('‹', 'one back', () => self.go(self.at - 1)), play,
    button('›', 'one forward', () => self.go(self.at + 1)), button('»', 'to the end', () => self.go(self.num)), slider, told);

  self.set = (at, num) => {
    self.num = num;
    self.at = Math.max(0, Math.min(num, at));
    slider.max = num;
    slider.value = self.at;
    T.tell(told, `${self.at} / ${num}`);
  };
  self.go = (at) => {
    const before = self.at;
    self.set(at, self.num);
    if (before !== self.at) take(self.at);
  };
  self.stop = () => {
    clearInterval(self.timer);
    self.timer = 0;
    play.textContent = 'play';
  };
  self.play = () => {
    if (self.timer) return self.stop();
    if (self.at === self.num) self.go(0);
    play.textContent = 'pause';
    self.timer = setInterval(() => {
      if (self.at >= self.num || self.element.closest('[hidden]')) self.stop();
      else self.go(self.at + 1);
    }, Math.max(40, Math.min(600, 20000 / Math.max(1, self.num))));
    return undefined;
  };
  self.key = (event) => {
    const to = { ArrowRight: self.at + 1, ArrowLeft: self.at - 1, PageDown: self.at + 10, PageUp: self.at - 10, Home: 0, End: self.num }[event.key];
    if (event.key === ' ' && !event.target.matches('button, summary')) self.play();
    else if (to !== undefined && !event.shiftKey) self.go(to);
    else return;
    event.preventDefault();
  };
  return self;
};

/* Numbers beside their names: [[title, text, help]]. */
T.view.tiles = (element, rows) => {
  T.fill(element, rows.map(([title, text, help]) => T.el('div', { class: 'v-tile', title: help || null }, T.el('dt', {}, title), T.el('dd', {}, text))));
};
