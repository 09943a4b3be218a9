/* A list of which only those rows exist that are seen: 10,000 of them scroll as quickly as ten. It
 * is a tree for a screen reader, with one place in the order of tabs. */
'use strict';

T.view.List = class {
  /* pick(row, open): a row was chosen, or, of a fold, is to be opened or closed. */
  constructor(pick, search) {
    this.rows = [];
    this.at = 0;
    this.pick = pick;
    this.search = search;
    this.height = 26;
    this.space = T.el('div', { class: 'list-space' });
    this.element = T.el('div', { class: 'list', role: 'tree', tabindex: 0, 'aria-label': 'instructions', onkeydown: (event) => this.key(event) }, this.space);
    this.element.addEventListener('scroll', () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  set(rows, chosen) {
    const now = this.rows[this.at];
    this.rows = rows;
    const same = (row) => now && ((now.i && row.i === now.i) || (now.level < 3 && row.level === now.level && row.own === now.own && row.group === now.group));
    const at = rows.findIndex(same);
    this.at = at >= 0 ? at : Math.max(0, rows.findIndex((row) => chosen && row.i === chosen));
    this.chosen = chosen;
    this.space.style.height = rows.length * this.height + 'px';
    this.draw();
  }

  mark(chosen) {
    this.chosen = chosen;
    this.draw();
  }

  show(wanted) {
    const at = this.rows.findIndex(wanted);
    if (at < 0) return;
    this.at = at;
    this.element.scrollTop = Math.max(0, at * this.height - this.element.clientHeight / 3);
    this.draw();
  }

  draw() {
    const from = Math.max(0, Math.floor(this.element.scrollTop / this.height) - 6);
    const to = Math.min(this.rows.length, from + Math.ceil(this.element.clientHeight / this.height) + 12);
    T.fill(this.space, this.rows.length ? this.rows.slice(from, to).map((row, n) => this.row(row, from + n)) : T.el('p', { class: 'soft' }, 'Nothing is found.'));
    this.element.setAttribute('aria-activedescendant', this.rows.length ? 'row-' + this.at : '');
  }

  row(row, at) {
    const fold = row.level === 1 ? row.own : row.group;
    const element = T.el('div', {
      id: 'row-' + at, role: 'treeitem', class: `row level${row.level}${at === this.at ? ' now' : ''}`, style: { top: at * this.height + 'px' },
      'aria-level': row.level, 'aria-expanded': row.level < 3 ? String(fold.open) : null, 'aria-setsize': this.rows.length, 'aria-posinset': at + 1,
      'aria-selected': String(row.level === 3 && row.i === this.chosen), onclick: () => this.click(at),
    });
    if (row.level === 1) {
      const s = row.own.segment;
      element.append(T.el('span', { class: 'fold', 'aria-hidden': true }, fold.open ? '▾' : '▸'), T.el('span', { class: 'key kind-' + s.action }, s.name), ` segment ${s.name}: ${T.view.actionNames[s.action] || s.action}, ${T.grouped(s.num_instructions)} instructions, ${T.grouped(s.calls)} call${s.calls === 1 ? '' : 's'}`);
    } else if (row.level === 2) {
      element.append(T.el('span', { class: 'fold', 'aria-hidden': true }, fold.open ? '▾' : '▸'), row.group.title, T.el('span', { class: 'soft' }, ` ${row.num} instruction${row.num === 1 ? '' : 's'}`));
    } else {
      this.instruction(element, row.i);
    }
    return element;
  }

  instruction(element, i) {
    const made = i.makes[0];
    element.append(T.el('span', { class: 'nr' }, String(i.number)), T.el('span', { class: 'op' + (i.message ? ' message' : '') }, i.operator), T.el('span', { class: 'made' }, i.made),
      T.el('span', { class: 'at' }, made ? `${made.space}+${made.offset_bytes.toString(16)}` : ''), T.el('span', { class: 'shape' }, made ? made.shape : ''));
  }

  click(at) {
    this.at = at;
    this.pick(this.rows[at]);
    this.draw();
  }

  move(at) {
    this.at = Math.max(0, Math.min(this.rows.length - 1, at));
    const top = this.at * this.height, view = this.element;
    if (top < view.scrollTop) view.scrollTop = top;
    else if (top + this.height > view.scrollTop + view.clientHeight) view.scrollTop = top + this.height - view.clientHeight;
    if (this.rows[this.at].level === 3) this.pick(this.rows[this.at]);
    this.draw();
  }

  /* To the fold that a row is in. */
  parent() {
    const level = this.rows[this.at].level;
    let at = this.at;
    while (at > 0 && this.rows[at].level >= level) at--;
    this.move(at);
  }

  key(event) {
    const row = this.rows[this.at], page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
    if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
    const to = { ArrowDown: this.at + 1, ArrowUp: this.at - 1, PageDown: this.at + page, PageUp: this.at - page, Home: 0, End: this.rows.length - 1 }[event.key];
    if (to !== undefined) this.move(to);
    else if (event.key === 'ArrowRight' && row.level < 3) this.pick(row, true);
    else if (event.key === 'ArrowLeft' && row.level < 3 && (row.level === 1 ? row.own : row.group).open) this.pick(row, false);
    else if (event.key === 'ArrowLeft') this.parent();
    else if (event.key === 'Enter' || event.key === ' ') this.pick(row);
    else if (event.key === '/') this.search();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
};
