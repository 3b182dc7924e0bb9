//! A browser without a window that a test drives: Chromium, through its own driver.
//!
//! Theory of operation. `chromedriver` is started on a port that it chooses and says, and is talked to by WebDriver:
//! JSON over HTTP, one connection for each question. The browser has a new profile in a home of its own, and what it
//! would ask the world for by itself is turned off, so that whatever is seen of its network comes from the page. Dropping
//! a [`Browser`] ends the session, which ends the browser, and then the driver.
//!
//! A machine without the two programs is told from one on which they do not work: the first is a reason for a `SKIP`,
//! the second panics.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::program;

/// What a browser that is loaded with other work needs at the most.
const PATIENCE: Duration = Duration::from_secs(120);
/// Arguments that keep a browser quiet: as root it needs the second one.
const QUIET: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
];
/// The member that names an element in WebDriver.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Keys, as WebDriver writes them.
pub mod key {
    /// To the next place that takes the focus.
    pub const TAB: &str = "\u{e004}";
    /// Enter.
    pub const ENTER: &str = "\u{e007}";
    /// The space bar.
    pub const SPACE: &str = " ";
    /// Escape.
    pub const ESCAPE: &str = "\u{e00c}";
}

/// A running browser with one page.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    // What the driver says has to go somewhere as long as it lives.
    said: mpsc::Receiver<io::Result<String>>,
    _home: tempfile::TempDir,
}

fn program_of(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<_> = std::env::split_paths(&path).collect();
    let all = names.iter().flat_map(|name| places.iter().map(move |place| place.join(name)));
    all.into_iter().find(|program| program.is_file())
}

impl Browser {
    /// Starts one, with scripts, a console that is recorded, and a network that is recorded.
    ///
    /// # Errors
    /// The program that is not there.
    ///
    /// # Panics
    /// When they are there and do not work.
    pub fn start() -> Result<Self, String> {
        let driver = program_of(&["chromedriver"]).ok_or("there is no chromedriver")?;
        let browser = program_of(&["chromium", "chromium-browser", "google-chrome"])
            .ok_or("there is no Chromium")?;
        let home = tempfile::tempdir().expect("a temporary directory");
        let profile = home.path().join("profile");
        fs::create_dir(&profile).expect("room");
        let mut driver = Command::new(driver)
            .arg("--port=0")
            .env("HOME", home.path())
            .env("TMPDIR", home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("a driver that is there can be started");
        let said = program::lines(driver.stdout.take().expect("piped"));
        // From here on a failure must still end the driver.
        let mut out = Self { driver, port: 0, session: String::new(), said, _home: home };
        out.port = port(&out.said).expect("the driver names the port on which it listens");
        let mut args: Vec<String> = QUIET.iter().map(|&arg| arg.to_owned()).collect();
        args.push(format!("--user-data-dir={}", profile.display()));
        let wanted = json!({
            "goog:chromeOptions": {"args": args, "binary": browser},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            "timeouts": {"script": 60_000, "pageLoad": 60_000},
        });
        let session =
            out.ask("POST", "/session", &json!({"capabilities": {"alwaysMatch": wanted}}));
        out.session = session["sessionId"].as_str().expect("a session has an id").to_owned();
        Ok(out)
    }

    /// One question of WebDriver; what the driver calls an error panics.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = talk(self.port, method, path, body)
            .unwrap_or_else(|e| panic!("{method} {path}: the driver does not answer: {e}"));
        let value = &answer["value"];
        assert!(value.get("error").is_none(), "{method} {path} {body}: {value}");
        value.clone()
    }

    fn post(&self, what: &str, body: &Value) -> Value {
        self.ask("POST", &format!("/session/{}/{what}", self.session), body)
    }

    /// Shows a file.
    pub fn open(&self, page: &Path) {
        self.post("url", &json!({"url": format!("file://{}", page.display())}));
    }

    /// Shows the same page again from its file.
    pub fn reload(&self) {
        self.post("refresh", &json!({}));
    }

    /// What the body of a function says of the page.
    pub fn tell(&self, body: &str) -> Value {
        self.post("execute/sync", &json!({"script": body, "args": []}))
    }

    /// Waits until the body of a function says true.
    ///
    /// # Panics
    /// When it does not come true.
    pub fn until(&self, body: &str) {
        let script = format!(
            "var done = arguments[0], holds = function () {{ {body} }};\
             (function again() {{ if (holds()) done(true); else setTimeout(again, 10); }})();"
        );
        self.post("execute/async", &json!({"script": script, "args": []}));
    }

    fn element(&self, selector: &str) -> String {
        let found = self.post("element", &json!({"using": "css selector", "value": selector}));
        found[ELEMENT].as_str().expect("an element has an id").to_owned()
    }

    /// Clicks with the pointer on the middle of an element, which has to be in sight.
    pub fn click(&self, selector: &str) {
        self.post(&format!("element/{}/click", self.element(selector)), &json!({}));
    }

    /// Presses keys, one after the other.
    pub fn press(&self, keys: &[&str]) {
        let down_and_up = |key: &&str| {
            [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
        };
        let actions: Vec<_> = keys.iter().flat_map(down_and_up).collect();
        self.post(
            "actions",
            &json!({"actions": [{"type": "key", "id": "keys", "actions": actions}]}),
        );
    }

    /// The role and the name that a screen reader is told.
    pub fn heard(&self, selector: &str) -> (String, String) {
        let element = self.element(selector);
        let ask = |what: &str| {
            let path = format!("/session/{}/element/{element}/{what}", self.session);
            self.ask("GET", &path, &Value::Null).as_str().unwrap_or_default().to_owned()
        };
        (ask("computedrole"), ask("computedlabel"))
    }

    /// A command of the protocol of Chromium's own tools.
    pub fn tool(&self, command: &str, params: &Value) -> Value {
        self.post("goog/cdp/execute", &json!({"cmd": command, "params": params}))
    }

    /// What the console was told since the last question, one text for each.
    pub fn console(&self) -> Vec<String> {
        self.log("browser").iter().map(|entry| entry["message"].to_string()).collect()
    }

    /// Addresses that pages asked for since the last question, without those that the browser's own first page asked
    /// for.
    pub fn requests(&self) -> Vec<String> {
        let event = |entry: &Value| -> Option<String> {
            let text = entry["message"].as_str()?;
            let event: Value = serde_json::from_str(text).ok()?;
            let event = &event["message"];
            let of_page = !event["params"]["documentURL"].as_str()?.starts_with("chrome:");
            let is_request = of_page && event["method"] == "Network.requestWillBeSent";
            is_request.then(|| event["params"]["request"]["url"].as_str().map(str::to_owned))?
        };
        self.log("performance").iter().filter_map(event).collect()
    }

    fn log(&self, kind: &str) -> Vec<Value> {
        let log = self.post("se/log", &json!({"type": kind}));
        log.as_array().expect("a log is a list").clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser is the driver's to end. Where the driver does not answer any more, both are in one group,
        // which is there as long as the driver has not been waited for.
        if !self.session.is_empty() {
            let path = format!("/session/{}", self.session);
            let _ = talk(self.port, "DELETE", &path, &Value::Null);
        }
        if let Some(group) = i32::try_from(self.driver.id()).ok().and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        let _ = self.driver.wait();
    }
}

/// The port that a driver says it listens on.
fn port(said: &mpsc::Receiver<io::Result<String>>) -> Option<u16> {
    loop {
        let line = said.recv_timeout(PATIENCE).ok()?.ok()?;
        if let Some((_, rest)) = line.split_once("started successfully on port ") {
            return rest.trim_end_matches('.').parse().ok();
        }
    }
}

/// One exchange.
fn talk(port: u16, method: &str, path: &str, body: &Value) -> io::Result<Value> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    // The driver keeps the connection, whatever it is asked, so the length tells where an answer ends.
    let mut answer = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while answer.read_line(&mut line)? > 0 && !line.trim().is_empty() {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
        }
        line.clear();
    }
    let mut body = vec![0; length];
    answer.read_exact(&mut body)?;
    Ok(serde_json::from_slice(&body)?)
}
