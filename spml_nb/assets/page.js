'use strict';
(() => {
  // Sorting: first press the natural direction, second the reverse, third the order of the paper.
  const valueOf = (row, k) => row.cells[k].dataset.v ?? '';
  const isNumber = (text) => text !== '' && Number.isFinite(Number(text));
  for (const table of document.querySelectorAll('table.sortable')) {
    const body = table.tBodies[0], original = [...body.rows], heads = [...table.querySelectorAll('thead [aria-sort]')];
    heads.forEach((head, k) => head.querySelector('button').addEventListener('click', () => {
      const numeric = original.every((row) => valueOf(row, k) === '' || isNumber(valueOf(row, k)));
      const [first, second] = numeric ? ['descending', 'ascending'] : ['ascending', 'descending'];
      const next = { none: first, [first]: second, [second]: 'none' }[head.getAttribute('aria-sort')];
      const sign = next === 'ascending' ? 1 : -1;
      const compare = (a, b) => {
        const [x, y] = [valueOf(a, k), valueOf(b, k)];
        if (x === '' || y === '') return (x === '') - (y === '');
        return sign * (numeric ? Number(x) - Number(y) : x.localeCompare(y, 'en'));
      };
      for (const other of heads) other.setAttribute('aria-sort', other === head ? next : 'none');
      body.append(...(next === 'none' ? original : [...original].sort(compare)));
    }));
  }

  for (const button of document.querySelectorAll('.copy')) {
    const code = button.previousElementSibling;
    const say = (text) => { button.textContent = text; setTimeout(() => { button.textContent = 'copy'; }, 1500); };
    const select = () => { getSelection().selectAllChildren(code); say('selected'); };
    button.addEventListener('click', () => {
      if (!navigator.clipboard) select();
      else navigator.clipboard.writeText(code.textContent).then(() => say('copied'), select);
    });
  }

  // The suite stands in the address, so that a link leads to what its sender saw.
  const given = new URLSearchParams(location.search).get('suite');
  for (const radio of document.querySelectorAll('[name=suite]')) {
    if (radio.value === given) radio.checked = true;
    radio.addEventListener('change', () => { try { history.replaceState(null, '', `?suite=${radio.value}${location.hash}`); } catch { /* some browsers refuse for files */ } });
  }

  const root = document.documentElement, theme = document.getElementById('theme');
  const stored = (value) => { try { return value ? localStorage.setItem('theme', value) : localStorage.getItem('theme'); } catch { return null; } };
  if (stored()) root.dataset.theme = stored();
  theme.hidden = false;
  theme.addEventListener('click', () => {
    const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = dark ? 'light' : 'dark';
    stored(root.dataset.theme);
  });
})();
