#!/bin/sh
# A minimal runner of level L1, written from `spec/` alone: POSIX sh, awk, and sha256sum. Usage: runner.sh CONFIG
# It takes fresh starts, runs one step after the other, also those of a group, and ends in order. It leads no revival and
# looks into no inbox. A step runs `command`, a list of words; one without does nothing. Its processes are the runner's own
# children, in its group, and are waited for: so no writer is recorded and the expected count of every step is 0 (RS-START-81).
set -u; umask 077; LC_ALL=C; export LC_ALL

# Reads JSON and prints shell assignments: v_<member>=text, j_<member>=the JSON text of a string, and of the flat steps
# a_<i>=agent as JSON, c_<i>=command as words for the shell. `wrong` names the first member that is wrong.
json='
function bad() { exit 1 }
function complain(what) { if (wrong == "") wrong = what }
function ws() { while (substr(s, p, 1) ~ /[ \t\r\n]/) p++ }
function quoted(x) { gsub(/\047/, "\047\\\\\047\047", x); return "\047" x "\047" }
function utf8(n,   out, room) {
  if (n < 128) return sprintf("%c", n)
  for (room = 64; n >= room; room /= 2) { out = sprintf("%c", 128 + n % 64) out; n = int(n / 64) }
  return sprintf("%c", 256 - 2 * room + n) out
}
function hex(x,   i, n) {
  if (x !~ /^[0-9A-Fa-f][0-9A-Fa-f][0-9A-Fa-f][0-9A-Fa-f]$/) bad()
  for (i = 1; i <= 4; i++) n = n * 16 + index("0123456789abcdef", tolower(substr(x, i, 1))) - 1; return n
}
function str(   c, out, n) {
  if (substr(s, p++, 1) != "\"") bad()
  while ((c = substr(s, p++, 1)) != "\"") {
    if (c == "" || c < " ") bad()
    if (c != "\\") { out = out c; continue }
    if ((c = substr(s, p++, 1)) == "u") {
      n = hex(substr(s, p, 4)); p += 4
      if (n >= 55296 && n < 56320 && substr(s, p, 2) == "\\u") { n = 65536 + (n - 55296) * 1024 + hex(substr(s, p + 2, 4)) - 56320; p += 6 }
      out = out utf8(n)
    } else if (c in escape) out = out escape[c]; else bad()
  }
  return out
}
function value(at,   c, k, n, b) {
  ws(); c = substr(s, p, 1)
  if (c == "{" || c == "[") {
    type[at] = c == "{" ? "object" : "array"; b = c == "{" ? "}" : "]"; p++; ws(); len[at] = 0
    if (substr(s, p, 1) == b) { p++; return }
    do {
      ws(); k = n++
      if (b == "}") { k = str(); ws(); if (substr(s, p++, 1) != ":") bad() }
      len[at] = n; value(at "." k); ws(); c = substr(s, p++, 1)
    } while (c == ",")
    if (c != b) bad()
  } else if (c == "\"") { b = p; val[at] = str(); raw[at] = substr(s, b, p - b); type[at] = "string" }
  else if (match(substr(s, p, 64), /^(true|false|null|-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?)/)) {
    raw[at] = substr(s, p, RLENGTH); p += RLENGTH; type[at] = raw[at] ~ /^[tf]/ ? "boolean" : raw[at] == "null" ? "null" : "number"
  } else bad()
}
function step(at, name,   i, words) {
  if (type[at] != "object") complain(name); if (val[at ".agent"] == "") complain(name ".agent")
  if (type[at ".task"] != "string") complain(name ".task")
  for (i = 1; i <= 3; i++) if (type[at "." inherit[i]] != "boolean") complain(name "." inherit[i])
  for (i = 0; i < len[at ".command"]; i++) words = words " " quoted(val[at ".command." i])
  print "a_" steps "=" quoted(raw[at ".agent"]) "; c_" steps "=" quoted(words); steps++
}
function percent(x,   i, c, out) {
  for (i = 1; i <= length(x); i++) { c = substr(x, i, 1); out = out (c ~ /[A-Za-z0-9_.!~*\047()-]/ ? c : sprintf("%%%02X", code[c])) }; return out
}
{ s = s $0 "\n" }
END {
  for (i = 1; i < 256; i++) code[sprintf("%c", i)] = i
  n = split("\" \" \\ \\ / / b \b f \f n \n r \r t \t", e, / /); for (i = 1; i < n; i += 2) escape[e[i]] = e[i + 1]
  split("inheritProjectContext inheritGlobalContext inheritSkills", inherit, " ")
  steps = 0; p = 1; value(""); ws(); if (p <= length(s)) bad()
  n = split("id resultPath cwd asyncDir runnerProcessInstanceId launchBarrierToken placeholder sessionId resultMode action token state", names, " ")
  for (i = 1; i <= n; i++) { k = names[i]; print "v_" k "=" quoted(val["." k]) "; j_" k "=" quoted(raw["." k]); if (i < 7 && val["." k] == "") complain(k) }
  if (type[".placeholder"] != "string") complain("placeholder"); if (type[".steps"] != "array" || !len[".steps"]) complain("steps")
  for (i = 0; i < len[".steps"]; i++) { at = ".steps." i; name = "steps[" i "]"
    if (type[at ".parallel"] != "array") { step(at, name); continue }
    if (!len[at ".parallel"]) complain(name ".parallel"); for (k = 0; k < len[at ".parallel"]; k++) step(at ".parallel." k, name)
  }
  print "steps=" steps + 0 "; wrong=" quoted(wrong) "; p_id=" quoted(percent(val[".id"])) "; p_session=" quoted(percent(val[".sessionId"])) "; object=" (type[""] == "object")
}'
die() { echo "runner: $1" >&2; exit 1; }
now() { date +%s000; }
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
# Replaces a file as a whole (chapter 12): put FILE TEXT
put() {
  mkdir -p "${1%/*}" && { plain "$1" || ! [ -e "$1" -o -L "$1" ]; } || return 1
  temp="${1%/*}/.${1##*/}.$$.$(now).$(od -An -N8 -tx1 /dev/urandom | tr -d ' \n').tmp"
  (set -C; printf %s "$2" >"$temp") && { sync "$temp" 2>/dev/null || sync; } && mv -f "$temp" "$1" || { rm -f "$temp"; return 1; }
}
# An id made fit for a file name (8.3): segment PERCENT-ENCODED TEXT LIMIT
segment() {
  if [ "${#1}" -le "$3" ] && ! printf '%s\n' "$1" | grep -Eqi '^$|\.$|^(con|prn|aux|nul|com[1-9]|lpt[1-9])(\.|$)|%5c|\.[a-z][a-z0-9]{0,7}$'; then printf %s "$1"
  else printf '~sha256-%s' "$(printf %s "$2" | sha256sum | cut -c1-64)"; fi
}
# One line with one write (RS-EVENT-08), after a torn one with a newline (RS-EVENT-09): tell TYPE [MEMBERS]
tell() {
  log="$dir/events.jsonl" torn=
  ! plain "$log" || [ -z "$(tail -c 1 "$log")" ] || torn='\n'
  [ -e "$log" ] && ! plain "$log" || printf "$torn%s\n" "{\"type\":\"$1\",\"ts\":$(now),\"runId\":$id${2:-}}" >>"$log"
}
# status STATE [MEMBERS]
status() {
  list= counts= n=0
  while [ "$n" -lt "$count" ]; do eval "list=\"\$list\${list:+,}{\\\"agent\\\":\$a_$n,\${s_$n:-\\\"status\\\":\\\"pending\\\"}}\""; counts="$counts${counts:+,}\"$n\":0" n=$((n + 1)); done
  put "$dir/status.json" "{\"lifecycleArtifactVersion\":3,\"runId\":$id${session:+,\"sessionId\":$session},\"mode\":\"$mode\",\"state\":\"$1\",\"startedAt\":$began,\"lastUpdate\":$(now),\"pid\":$$,\"steps\":[$list],\"processTerminal\":{\"version\":1,\"state\":\"pending\",\"runId\":$id,\"runnerProcessInstanceId\":$instance}${2:-}}"
}
fail() { put "$dir/runner-startup.json" "{\"state\":\"error\",\"pid\":$$,\"error\":\"$1\"}"; die "$1"; }
plain "${1:-}" || die 'the configuration is no plain file'
vars=$(awk "$json" "$1") || die 'the configuration is no JSON'
eval "$vars"; rm -f "$1"
[ "$object" = 1 ] && [ -z "$wrong" ] || die "${wrong:-the configuration} is missing or of another type"
[ "${v_asyncDir##*/}" = "$v_id" ] || die 'asyncDir is not the directory of this run'
[ "$v_launchBarrierToken" = "$v_runnerProcessInstanceId" ] || die 'launchBarrierToken is not the instance'
dir=$v_asyncDir id=$j_id token=$v_launchBarrierToken instance=$j_runnerProcessInstanceId cwd=$v_cwd result=$v_resultPath count=$steps began=$(now)
runs=${dir%/*} results=${result%/*} session=${v_sessionId:+$j_sessionId} mode=${v_resultMode:-single} control=$dir/runner-startup-proceed.json
name=$(segment "$p_id" "$v_id" 250).json in_session=$(segment "$p_session" "$v_sessionId" 255) active=$runs/.active-runs/$v_id until=$(($(date +%s) + 30))
# RS-START-07, RS-START-48: judged in this order, for at most 30 s.
while :; do
  if [ -e "$control" ] || [ -L "$control" ]; then
    plain "$control" && [ "$(wc -c <"$control")" -le 65536 ] || fail 'the control is no plain file of this size'
    vars=$(awk "$json" "$control" 2>/dev/null) || fail 'the control is no JSON'
    eval "$vars"; [ "$v_token" = "$token" ] || fail 'the control names another launch'
    case $v_action in proceed) rm -f "$control"; break ;; ack | confirm) ;; *) fail 'the control has an unknown action' ;; esac
  fi
  [ "$(date +%s)" -lt "$until" ] || fail 'nobody said proceed within 30 s'
  sleep 0.05 2>/dev/null || sleep 1
done
was=$(vars=$(awk "$json" "$dir/status.json" 2>/dev/null) && eval "$vars" && printf %s "$v_state")
case $was in complete | failed | partial | stopped | rejected) die 'the run has ended before' ;; esac
status running ',"currentStep":0' || exit 1; tell subagent.run.started ",\"lifecycleArtifactVersion\":3,\"mode\":\"$mode\",\"pid\":$$"
mkdir -p "$results" || { status failed ",\"endedAt\":$(now),\"error\":\"the result has no directory\""; exit 0; }
state=complete i=0
while [ "$i" -lt "$count" ] && [ "$state" = complete ]; do
  eval "agent=\$a_$i words=\$c_$i"; start=$(now) word=complete told=completed code=0 output=$dir/output-$i.log
  eval "s_$i='\"status\":\"running\",\"startedAt\":$start'"
  tell subagent.step.started ",\"stepIndex\":$i,\"agent\":$agent"; status running ",\"currentStep\":$i"
  [ ! -e "$output" ] || plain "$output" || output=/dev/null
  [ -z "$words" ] || (cd "$cwd" && eval "exec $words") </dev/null >>"$output" 2>&1 || word=failed told=failed code=1 state=failed
  eval "s_$i='\"status\":\"$word\",\"startedAt\":$start,\"endedAt\":$(now),\"exitCode\":$code'"
  tell "subagent.step.$told" ",\"stepIndex\":$i,\"agent\":$agent"; status running; i=$((i + 1))
done
# The order of RS-STEP-07 from here on.
for box in stop steer; do put "$dir/control/$box-inbox-closed.json" "{\"version\":1,\"closedAt\":$(now)}"; done
ended=$(now) success=false code=1; [ "$state" = failed ] || success=true code=0
if [ -n "$session" ]; then
  pending=$results/result-pending/$in_session/$name entry="{\"version\":1,\"runId\":$id,\"sessionId\":$session,\"file\":\"${result##*/}\",\"writtenAt\":$ended}"
  put "$pending" "{\"id\":$id,\"agent\":$a_0,\"mode\":\"$mode\",\"success\":$success,\"state\":\"$state\",\"summary\":\"$i of $count steps\",\"results\":[],\"exitCode\":$code,\"timestamp\":$ended,\"durationMs\":$((ended - began)),\"sessionId\":$session}" &&
    put "$results/result-index/sessions/$in_session/$name" "$entry" && put "$results/result-index/runs/$name" "$entry" && mv -f "$pending" "$result"
fi
status "$state" ",\"endedAt\":$ended" || exit 1
[ -z "$session" ] || put "$runs/.terminal-runs/$in_session/$(printf %016d "$ended")-$name" "{\"version\":1,\"runId\":$id,\"sessionId\":$session,\"endedAt\":$ended}"
rm -f "$active"; tell subagent.run.completed ",\"lifecycleArtifactVersion\":3,\"status\":\"$state\",\"durationMs\":$((ended - began))"
put "$dir/process-terminal-candidate.json" "{\"version\":1,\"runId\":$id,\"runnerProcessInstanceId\":$instance,\"writers\":{},\"expectedWriters\":{$counts}}"
