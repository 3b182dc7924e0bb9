//! `runstore sweep --print-unit`: what a timer of the system wants to read. It is printed, and nothing else is done.
//!
//! Theory of operation. A timer starts without the environment of this shell, so what decides which stores are
//! this user's goes along: the paths that were named, else the variables that lead to the default ones. Each of
//! the three formats has its own rules of quoting, and a word that cannot be told in one (a line feed in a line of
//! cron) is refused. Spec: RS-REC-46.

use std::io::Write as _;
use std::path::PathBuf;

use runstore::protocol::temp_root::Family;
use runstore::store::{Host as _, RealHost};

use crate::cli::args::{SweepArgs, UnitKind};
use crate::cli::exit_code::Code;
use crate::cli::output::{Failure, Output};
use crate::cli::render::shell_word;

/// Variables that the default places of stores follow from.
fn variables() -> [&'static str; 3] {
    [Family::Pi.root_variable(), Family::Dm.root_variable(), "TMPDIR"]
}

/// How often, where it is not said.
const EVERY_S: u64 = 60;

/// What is started, and with what.
struct Unit {
    /// Program and arguments.
    words: Vec<String>,
    /// Variables that it needs.
    env: Vec<(&'static str, String)>,
    every_s: u64,
}

/// Prints the unit of a kind; of the usual one of this system where none was named.
pub(crate) fn print(
    host: &RealHost,
    args: &SweepArgs,
    kind: Option<UnitKind>,
    output: &mut Output,
) -> Result<Code, Failure> {
    let unit = unit(host, args)?;
    let usual = if cfg!(target_os = "macos") {
        UnitKind::Launchd
    } else if cfg!(target_os = "linux") {
        UnitKind::Systemd
    } else {
        UnitKind::Cron
    };
    let text = match kind.unwrap_or(usual) {
        UnitKind::Systemd => systemd(&unit),
        UnitKind::Launchd => launchd(&unit),
        UnitKind::Cron => cron(&unit),
    };
    output.writer().write_all(text.as_bytes())?;
    Ok(Code::FINE)
}

fn unit(host: &RealHost, args: &SweepArgs) -> Result<Unit, Failure> {
    let program = std::env::current_exe().map_err(|e| {
        Failure::user(Code::INTERNAL, "the path of this program is not known").because(e)
    })?;
    let mut words: Vec<PathBuf> = vec![program, "sweep".into()];
    words.extend(args.targets.iter().map(|path| host.absolute(path)));
    if let Some(policy) = &args.policy {
        words.extend(["--policy".into(), host.absolute(policy)]);
    }
    let is_default = args.targets.is_empty();
    let variables = variables().into_iter().filter(|_| is_default);
    let env = variables.filter_map(|name| Some((name, host.env(name)?)));
    let text = |word: std::ffi::OsString| match word.into_string() {
        Ok(text) if !text.contains(['\n', '\r', '\0']) => Ok(text),
        _ => Err(Failure::user(Code::USAGE, "a path or variable cannot be told in a unit")
            .because("it is not one line of text")
            .hint("name the stores by other paths")),
    };
    Ok(Unit {
        words: words
            .into_iter()
            .map(|word| text(word.into_os_string()))
            .collect::<Result<_, _>>()?,
        env: env.map(|(name, value)| Ok((name, text(value)?))).collect::<Result<_, Failure>>()?,
        every_s: args.every.map_or(EVERY_S, |every| every.as_secs().max(1)),
    })
}

/// A word for a line of systemd: in quotes, with its specifiers and variables taken for what they are.
fn systemd_word(word: &str) -> String {
    let quoted = word.replace('\\', r"\\").replace('"', "\\\"");
    format!("\"{}\"", quoted.replace('%', "%%"))
}

fn systemd(unit: &Unit) -> String {
    // Only in a command a dollar begins a variable.
    let command: Vec<_> =
        unit.words.iter().map(|word| systemd_word(word).replace('$', "$$")).collect();
    let env: String = unit
        .env
        .iter()
        .map(|(name, value)| format!("Environment={}\n", systemd_word(&format!("{name}={value}"))))
        .collect();
    format!(
        "\
# ~/.config/systemd/user/runstore-sweep.service
[Unit]
Description=Repair runs whose runner is gone

[Service]
Type=oneshot
{env}ExecStart={command}
# 1, 5: something is left for a person; 7: another recovery is at work.
SuccessExitStatus=1 5 7

# ~/.config/systemd/user/runstore-sweep.timer
[Unit]
Description=Repair runs whose runner is gone, again and again

[Timer]
OnStartupSec=10s
OnUnitInactiveSec={every}s

[Install]
WantedBy=timers.target

# then: systemctl --user daemon-reload && systemctl --user enable --now runstore-sweep.timer
",
        command = command.join(" "),
        every = unit.every_s,
    )
}

fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn launchd(unit: &Unit) -> String {
    let words: String =
        unit.words.iter().map(|word| format!("\t\t<string>{}</string>\n", xml(word))).collect();
    let entry = |(name, value): &(&str, String)| {
        format!("\t\t<key>{name}</key>\n\t\t<string>{}</string>\n", xml(value))
    };
    let env: String = unit.env.iter().map(entry).collect();
    let env = if env.is_empty() {
        env
    } else {
        format!("\t<key>EnvironmentVariables</key>\n\t<dict>\n{env}\t</dict>\n")
    };
    format!(
        "\
<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">
<!-- ~/Library/LaunchAgents/runstore.sweep.plist; then: launchctl load -w that file -->
<plist version=\"1.0\">
<dict>
\t<key>Label</key>
\t<string>runstore.sweep</string>
\t<key>ProgramArguments</key>
\t<array>
{words}\t</array>
{env}\t<key>RunAtLoad</key>
\t<true/>
\t<key>StartInterval</key>
\t<integer>{every}</integer>
</dict>
</plist>
",
        every = unit.every_s,
    )
}

/// A command for cron: quoted for the shell, and with the sign that ends a command for cron itself taken for what
/// it is.
fn cron(unit: &Unit) -> String {
    let env = unit.env.iter().map(|(name, value)| format!("{name}={}", shell_word(value)));
    let words = unit.words.iter().map(|word| shell_word(word).into_owned());
    let command = env.chain(words).collect::<Vec<_>>().join(" ").replace('%', r"\%");
    // Cron counts in minutes, and only what divides an hour comes round evenly.
    let minutes = (unit.every_s / 60).clamp(1, 59);
    let when = if minutes == 1 { "*".to_owned() } else { format!("*/{minutes}") };
    format!("# crontab -e\n{when} * * * * {command} >/dev/null 2>&1\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit() -> Unit {
        Unit {
            words: vec![
                r#"/opt/a b/run$tore"#.to_owned(),
                "sweep".to_owned(),
                r#"/s/50% "x"&<y>'"#.to_owned(),
            ],
            env: vec![("TMPDIR", "/t m'p".to_owned())],
            every_s: 120,
        }
    }

    #[test]
    fn each_format_quotes_by_its_own_rules() {
        let text = systemd(&unit());
        assert!(
            text.contains(r#"ExecStart="/opt/a b/run$$tore" "sweep" "/s/50%% \"x\"&<y>'""#),
            "{text}"
        );
        assert!(text.contains(r#"Environment="TMPDIR=/t m'p""#), "{text}");
        assert!(text.contains("OnUnitInactiveSec=120s"), "{text}");
        let text = launchd(&unit());
        assert!(text.contains("<string>/s/50% \"x\"&amp;&lt;y&gt;'</string>"), "{text}");
        assert!(text.contains("<integer>120</integer>"), "{text}");
        let text = cron(&unit());
        let line = r#"*/2 * * * * TMPDIR='/t m'\''p' '/opt/a b/run$tore' sweep '/s/50\% "x"&<y>'\''' >/dev/null 2>&1"#;
        assert!(text.contains(line), "{text}");
    }
}
