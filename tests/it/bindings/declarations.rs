//! A reader of the TypeScript declarations in `bindings/typescript`, and what it means for a value to be of one.
//!
//! Theory of operation. The text is cut into words and signs, and read by the grammar of what the generator writes:
//! interfaces with or without an index signature, and unions of literals, names, arrays and records. Everything else is
//! refused, so nothing is passed over. This is no compiler: it knows no other TypeScript, and it judges values of
//! JSON, not expressions. A compiler judges the same documents where there is one.

use std::collections::BTreeMap;

use serde_json::Value;

/// A type.
#[derive(Debug, Clone)]
enum Kind {
    Unknown,
    Never,
    Null,
    Boolean,
    Number,
    Text,
    Fixed(Value),
    Named(String),
    List(Box<Kind>),
    /// By any name, or those of a list.
    Record(Box<Kind>, Box<Kind>),
    OneOf(Vec<Kind>),
    /// Members, and whether others may be there.
    Object(Vec<(String, bool, Kind)>, bool),
}

/// All declarations of a file.
#[derive(Debug)]
pub(super) struct Declarations(BTreeMap<String, Kind>);

impl Declarations {
    /// Reads the text of a file.
    pub(super) fn read(text: &str) -> Self {
        let mut reader = Reader { tokens: tokens(text), at: 0 };
        let mut all = BTreeMap::new();
        while reader.at < reader.tokens.len() {
            reader.expect("export");
            let is_object = match reader.next().as_str() {
                "interface" => true,
                "type" => false,
                other => panic!("no declaration: {other}"),
            };
            let name = reader.next();
            let kind = if is_object { reader.object() } else { reader.alias() };
            assert!(all.insert(name.clone(), kind).is_none(), "{name} is declared twice");
        }
        Self(all)
    }

    /// The name of the type of a schema.
    pub(super) fn of_schema(&self, schema: &str) -> String {
        let Some(Kind::Object(members, _)) = self.0.get("BySchema") else {
            panic!("a list of schemas")
        };
        let found = members.iter().find(|(name, ..)| name == schema);
        match found {
            Some((_, true, Kind::Named(name))) => name.clone(),
            other => panic!("{schema}: {other:?}"),
        }
    }

    /// Whether a value is of a type.
    pub(super) fn fits(&self, name: &str, value: &Value) -> bool {
        self.is(&self.0[name], value)
    }

    fn is(&self, kind: &Kind, value: &Value) -> bool {
        match kind {
            Kind::Unknown => true,
            Kind::Never => false,
            Kind::Null => value.is_null(),
            Kind::Boolean => value.is_boolean(),
            Kind::Number => value.is_number(),
            Kind::Text => value.is_string(),
            Kind::Fixed(fixed) if fixed.is_number() => fixed.as_f64() == value.as_f64(),
            Kind::Fixed(fixed) => fixed == value,
            Kind::Named(name) => self.fits(name, value),
            Kind::List(items) => {
                value.as_array().is_some_and(|list| list.iter().all(|item| self.is(items, item)))
            }
            Kind::Record(keys, values) => value.as_object().is_some_and(|members| {
                let key_fits = |key: &str| self.is(keys, &Value::from(key));
                members.iter().all(|(key, item)| key_fits(key) && self.is(values, item))
            }),
            Kind::OneOf(kinds) => kinds.iter().any(|kind| self.is(kind, value)),
            Kind::Object(listed, is_open) => value.as_object().is_some_and(|members| {
                let is_listed = |key: &String| listed.iter().any(|(name, ..)| name == key);
                let others_may = *is_open || members.keys().all(is_listed);
                let fits = |(name, required, kind): &(String, bool, Kind)| match members.get(name) {
                    Some(item) => self.is(kind, item),
                    None => !required,
                };
                others_may && listed.iter().all(fits)
            }),
        }
    }

    /// Every name that a type mentions, for those who look whether it is declared.
    pub(super) fn undeclared(&self) -> Vec<String> {
        let mut missing = Vec::new();
        let mut open: Vec<&Kind> = self.0.values().collect();
        while let Some(kind) = open.pop() {
            match kind {
                Kind::Named(name) if !self.0.contains_key(name) => missing.push(name.clone()),
                Kind::List(items) => open.push(items),
                Kind::Record(keys, values) => open.extend([&**keys, &**values]),
                Kind::OneOf(kinds) => open.extend(kinds),
                Kind::Object(members, _) => open.extend(members.iter().map(|(.., kind)| kind)),
                _ => {}
            }
        }
        missing
    }
}

/// Words, strings, numbers and single signs; comments and blanks are left out.
fn tokens(text: &str) -> Vec<String> {
    let pattern = r#"//[^\n]*|/\*[^*]*(?:\*[^/*][^*]*)*\*/|"(?:[^"\\]|\\.)*"|[A-Za-z_$][A-Za-z0-9_$]*|-?[0-9][0-9.]*|\S"#;
    let pattern = regex_lite::Regex::new(pattern).expect("a valid pattern");
    let found = pattern.find_iter(text).map(|found| found.as_str());
    found.filter(|token| !token.starts_with('/')).map(str::to_owned).collect()
}

struct Reader {
    tokens: Vec<String>,
    at: usize,
}

impl Reader {
    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    fn next(&mut self) -> String {
        self.at += 1;
        self.tokens.get(self.at - 1).expect("the text goes on").clone()
    }

    fn takes(&mut self, token: &str) -> bool {
        let is_there = self.peek() == token;
        self.at += usize::from(is_there);
        is_there
    }

    fn expect(&mut self, token: &str) {
        let is_there = self.takes(token);
        let around = self.tokens[self.at.saturating_sub(8)..].iter().take(16).cloned();
        assert!(is_there, "{token} is missing: {}", around.collect::<Vec<_>>().join(" "));
    }

    fn alias(&mut self) -> Kind {
        self.expect("=");
        let kind = self.union();
        self.expect(";");
        kind
    }

    fn object(&mut self) -> Kind {
        self.expect("{");
        let (mut members, mut is_open) = (Vec::new(), false);
        while !self.takes("}") {
            if self.takes("[") {
                for token in ["member", ":", "string", "]", ":", "unknown", ";"] {
                    self.expect(token);
                }
                is_open = true;
                continue;
            }
            let name = self.next();
            let name = if name.starts_with('"') { text(&name) } else { name };
            let required = !self.takes("?");
            self.expect(":");
            members.push((name, required, self.union()));
            self.expect(";");
        }
        Kind::Object(members, is_open)
    }

    fn union(&mut self) -> Kind {
        self.takes("|");
        let mut kinds = vec![self.one()];
        while self.takes("|") {
            kinds.push(self.one());
        }
        if kinds.len() == 1 { kinds.remove(0) } else { Kind::OneOf(kinds) }
    }

    fn one(&mut self) -> Kind {
        if self.takes("(") {
            // The one form that is written in brackets: any text, kept apart from the words that are known.
            for token in ["string", "&", "{", "}", ")"] {
                self.expect(token);
            }
            return Kind::Text;
        }
        let token = self.next();
        match token.as_str() {
            "unknown" => Kind::Unknown,
            "never" => Kind::Never,
            "null" => Kind::Null,
            "boolean" => Kind::Boolean,
            "number" => Kind::Number,
            "string" => Kind::Text,
            "true" | "false" => Kind::Fixed(Value::Bool(token == "true")),
            "Array" => {
                self.expect("<");
                let items = self.union();
                self.expect(">");
                Kind::List(Box::new(items))
            }
            "Record" => self.record(),
            "Partial" => {
                self.expect("<");
                self.expect("Record");
                let record = self.record();
                self.expect(">");
                record
            }
            _ if token.starts_with('"') => Kind::Fixed(text(&token).into()),
            _ if token.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
                Kind::Fixed(token.parse().expect("a number"))
            }
            _ if token.starts_with(|c: char| c.is_ascii_alphabetic()) => Kind::Named(token),
            other => panic!("no type begins with {other}"),
        }
    }

    fn record(&mut self) -> Kind {
        self.expect("<");
        let keys = self.union();
        self.expect(",");
        let values = self.union();
        self.expect(">");
        Kind::Record(Box::new(keys), Box::new(values))
    }
}

fn text(token: &str) -> String {
    serde_json::from_str(token).expect("a string")
}
