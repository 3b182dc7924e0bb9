//! Where answers and errors go.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Display};
use std::io::{self, IsTerminal as _, Write};
use std::rc::Rc;

use anstyle::{AnsiColor, Style};

use super::exit_code::Code;

/// Why a verb gave no (full) answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nobody reads the answer any more.
    ClosedPipe,
    /// The answer could not be written.
    Write(io::Error),
    /// Something the caller can fix: the code, what was attempted, the cause, hints.
    User { code: Code, what: String, cause: Option<String>, hints: Vec<String> },
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        if e.kind() == io::ErrorKind::BrokenPipe { Self::ClosedPipe } else { Self::Write(e) }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(e: serde_json::Error) -> Self {
        io::Error::from(e).into()
    }
}

impl Failure {
    /// A failure with its code.
    pub(crate) fn user(code: Code, what: impl Into<String>) -> Self {
        Self::User { code, what: what.into(), cause: None, hints: Vec::new() }
    }

    /// Adds the cause.
    pub(crate) fn because(mut self, why: impl Display) -> Self {
        if let Self::User { cause, .. } = &mut self {
            *cause = Some(why.to_string());
        }
        self
    }

    /// Adds a hint.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        if let Self::User { hints, .. } = &mut self {
            hints.push(hint.into());
        }
        self
    }
}

/// Standard output, with colours where they are wanted. Buffered twice: the outer buffer gathers the
/// pieces of a line, the inner one the pieces that are left when colours were taken out.
pub(crate) struct Output {
    out: io::BufWriter<anstream::AutoStream<Box<dyn Write>>>,
    /// The inner buffer, for whatever needs no filter.
    inner: Shared,
    color: anstream::ColorChoice,
    has_color: bool,
    /// Characters of the line of progress that is shown.
    progress_width: Cell<usize>,
}

/// A writer with two holders, both on one thread.
#[derive(Clone)]
struct Shared(Rc<RefCell<io::BufWriter<io::StdoutLock<'static>>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.borrow_mut().flush()
    }
}

impl Output {
    /// Opens standard output. `NO_COLOR`, `CLICOLOR_FORCE` and `TERM` are honoured by `Auto`. Only
    /// text passes the filter that removes colours: it would remove characters of a JSON string too.
    pub(crate) fn new(color: anstream::ColorChoice, is_text: bool) -> Self {
        const BUFFER: usize = 64 << 10;
        let stdout = io::stdout().lock();
        let choice = match color {
            _ if !is_text => anstream::ColorChoice::AlwaysAnsi,
            // Only the terminal itself knows whether it is one, so it is asked before it is wrapped.
            anstream::ColorChoice::Auto => anstream::AutoStream::choice(&stdout),
            chosen => chosen,
        };
        let buffer = io::BufWriter::with_capacity(BUFFER, stdout);
        let inner = Shared(Rc::new(RefCell::new(buffer)));
        let filtered: Box<dyn Write> = Box::new(inner.clone());
        let stream = anstream::AutoStream::new(filtered, choice);
        let has_color = is_text && !matches!(stream.current_choice(), anstream::ColorChoice::Never);
        Self {
            out: io::BufWriter::with_capacity(BUFFER, stream),
            inner,
            color,
            has_color,
            progress_width: Cell::new(0),
        }
    }

    /// Whether text is written with colours.
    pub(crate) fn has_color(&self) -> bool {
        self.has_color
    }

    /// Writes what has colours exactly where they are wanted, so that nothing need be filtered.
    pub(crate) fn write_styled(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.out.buffer().is_empty() {
            self.out.flush()?;
        }
        self.inner.write_all(bytes)
    }

    /// The writer.
    pub(crate) fn writer(&mut self) -> &mut impl Write {
        &mut self.out
    }

    /// Writes out what is buffered.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        Ok(self.out.flush()?)
    }

    /// Writes one line of talk to standard error.
    pub(crate) fn talk(&self, line: &str) {
        let mut err = anstream::AutoStream::new(io::stderr().lock(), self.color);
        // Nothing is left to do when even standard error is gone.
        let _ = writeln!(err, "{line}");
    }

    /// Whether progress may be shown.
    pub(crate) fn shows_progress(&self) -> bool {
        io::stderr().is_terminal()
    }

    /// Shows how far something is, on one line that replaces itself.
    pub(crate) fn progress(&self, line: &str) {
        let width = line.chars().count();
        // Spaces and no code: also a terminal that knows nothing shows it.
        let rest = self.progress_width.replace(width).saturating_sub(width);
        let _ = write!(io::stderr().lock(), "\r{line}{:rest$}", "");
    }

    /// Removes the line of progress, if there is one.
    pub(crate) fn end_progress(&self) {
        let width = self.progress_width.take();
        if width > 0 {
            let _ = write!(io::stderr().lock(), "\r{:width$}\r", "");
        }
    }

    /// Reports a failure and gives its code.
    pub(crate) fn report(&self, failure: &Failure) -> Code {
        let bold = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
        let (code, what, cause, hints) = match failure {
            Failure::ClosedPipe => return Code::FINE,
            Failure::Write(e) => (
                Code::IO,
                "the answer could not be written".to_owned(),
                Some(e.to_string()),
                &[][..],
            ),
            Failure::User { code, what, cause, hints } => {
                (*code, what.clone(), cause.clone(), &hints[..])
            }
        };
        self.talk(&format!("{bold}error:{bold:#} {}", super::render::escape(&what)));
        if let Some(cause) = cause {
            self.talk(&format!("  because: {}", super::render::escape(&cause)));
        }
        if !hints.is_empty() {
            self.talk("");
        }
        for hint in hints {
            self.talk(&format!("hint: {}", super::render::escape(hint)));
        }
        code
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").finish_non_exhaustive()
    }
}
