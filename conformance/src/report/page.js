(function () {
  'use strict';
  var all = function (what, within) { return Array.from((within || document).querySelectorAll(what)); };
  var checks = all('article[data-verdict]'), clauses = all('.clause'), areas = all('.area');
  var buttons = all('button[data-key]'), find = document.getElementById('find'), say = document.getElementById('shown');
  var on = { verdict: '', level: '' };
  var words = new Map(checks.map(function (check) {
    return [check, (check.closest('.clause').querySelector('summary').textContent + ' ' + check.textContent).toLowerCase()];
  }));

  function show() {
    var wanted = find.value.trim().toLowerCase(), count = 0;
    checks.forEach(function (check) {
      var fits = Object.keys(on).every(function (key) { return !on[key] || check.dataset[key] === on[key]; });
      check.hidden = !(fits && words.get(check).includes(wanted));
      if (!check.hidden) count += 1;
    });
    clauses.forEach(function (clause) { clause.hidden = !clause.querySelector('article:not([hidden])'); });
    areas.forEach(function (area) { area.hidden = !area.querySelector('.clause:not([hidden])'); });
    buttons.forEach(function (button) {
      button.setAttribute('aria-pressed', String(on[button.dataset.key] === button.dataset.word));
    });
    var rows = clauses.filter(function (clause) { return !clause.hidden; }).length;
    say.textContent = count + ' of ' + checks.length + ' checks shown, of ' + rows + ' clauses';
  }

  function everything() {
    on.verdict = on.level = find.value = '';
    show();
  }

  function go() {
    var target = null;
    try { target = document.getElementById(decodeURIComponent(location.hash.slice(1))); } catch (e) { return; }
    if (!target || !target.matches('details, article')) return;
    if (target.closest('[hidden]')) everything();
    for (var at = target; at; at = at.parentElement) if (at.tagName === 'DETAILS') at.open = true;
    var heard = target.tagName === 'DETAILS' ? target.querySelector('summary') : target;
    heard.focus({ preventScroll: true });
    target.scrollIntoView();
  }

  buttons.forEach(function (button) {
    button.addEventListener('click', function () {
      var key = button.dataset.key, word = button.dataset.word;
      on[key] = on[key] === word ? '' : word;
      show();
    });
  });
  all('button[data-open]').forEach(function (button) {
    button.addEventListener('click', function () {
      clauses.forEach(function (clause) { if (!clause.hidden) clause.open = button.dataset.open === 'yes'; });
    });
  });
  find.addEventListener('input', show);
  addEventListener('keydown', function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Escape') everything();
    if (event.key === '/' && document.activeElement !== find) {
      event.preventDefault();
      find.focus();
    }
  });
  // A link to where one has been before changes nothing, so it says nothing.
  document.addEventListener('click', function (event) {
    var link = event.target.closest('a[href^="#"]');
    if (link && link.getAttribute('href') === location.hash) go();
  });
  addEventListener('hashchange', go);
  document.getElementById('tools').hidden = false;
  show();
  go();
})();
