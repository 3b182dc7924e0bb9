//! What the schemas say, as declarations of types.
//!
//! Theory of operation. First every list of words gets a name: one that stands at several places has it from
//! its layer, because a name that follows from one of its places would be wrong at the others. Then each schema is
//! read from its root, depth first, and a type is declared when all that it names is. Names follow from the place:
//! schema, definition, member. Two declarations of one name are an error.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use serde_json::{Map, Value};

use super::layer::Layer;
use crate::schema::Schemas;

/// What may stand at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Any,
    /// The member must be absent.
    Never,
    Null,
    Boolean,
    Integer,
    Number,
    Text,
    /// One value, as JSON.
    Fixed(Value),
    /// The words of a list that is declared.
    Words(String),
    /// The same, and any other word.
    OpenWords(String),
    List(Box<Shape>),
    /// An object with members of one shape, under the words of a list or any name.
    Map(Option<String>, Box<Shape>),
    /// A type that is declared.
    Named(String),
    OneOf(Vec<Shape>),
}

/// A member of an object.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) shape: Shape,
    pub(super) required: bool,
    pub(super) note: Option<String>,
}

/// A type with a name.
#[derive(Debug)]
pub(super) struct Declared {
    pub(super) name: String,
    pub(super) note: Option<String>,
    pub(super) body: Body,
}

/// What a declared type is.
#[derive(Debug)]
pub(super) enum Body {
    Words(Vec<String>),
    /// Members, and whether others may be there.
    Object(Vec<Member>, bool),
    OneOf(Vec<Shape>),
}

/// Keywords that only narrow what the type says already.
const NARROWING: [&str; 13] = [
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "exclusiveMinimum",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contains",
    "$comment",
    "$schema",
    "$id",
    "title",
];

/// All types, each after those that it names, and which of them stands for which whole schema.
#[derive(Debug)]
pub(super) struct Types {
    pub(super) declared: Vec<Declared>,
    pub(super) of_schemas: Vec<(String, String)>,
}

/// Reads every schema of a directory, in the order of their names.
pub(super) fn read(dir: &Path, layer: &Layer) -> io::Result<Types> {
    let schemas = Schemas::load(dir)?;
    let mut reader = Reader {
        words: name_lists(&schemas, layer)?,
        schemas: &schemas,
        declared: Vec::new(),
        names: BTreeSet::new(),
    };
    let mut of_schemas = Vec::new();
    for name in schemas.names() {
        if let Shape::Named(type_name) = reader.root(name)? {
            of_schemas.push((name.to_owned(), type_name));
        }
    }
    Ok(Types { declared: reader.declared, of_schemas })
}

/// The type of a whole schema. One that describes an answer of the program says so in its name.
fn type_name(schema: &str, whole: &Value) -> String {
    let is_answer = whole.pointer("/properties/schema/const").is_some();
    pascal(schema) + if is_answer { "Answer" } else { "" }
}

fn pascal(name: &str) -> String {
    let parts = name.split(|c: char| !c.is_ascii_alphanumeric());
    let upper = |part: &str| part[..1].to_ascii_uppercase() + &part[1..];
    parts.filter(|part| !part.is_empty()).map(upper).collect()
}

fn wrong(place: &str, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{place}: {what}"))
}

/// The members of a schema that is an object.
fn rules(schema: &Value) -> Option<&Map<String, Value>> {
    schema.as_object()
}

fn whole<'s>(schemas: &'s Schemas, name: &str) -> io::Result<&'s Value> {
    schemas.part(name, "").ok_or_else(|| wrong(name, "there is no such schema"))
}

/// The words of a list.
fn words_of(list: &Value, place: &str) -> io::Result<Vec<String>> {
    let words = list.as_array().map_or(&[][..], Vec::as_slice);
    let text = |word: &Value| word.as_str().map(str::to_owned);
    words.iter().map(text).collect::<Option<_>>().ok_or_else(|| wrong(place, "no list of words"))
}

/// The name of every list of words that is a type, by the words.
fn name_lists(schemas: &Schemas, layer: &Layer) -> io::Result<BTreeMap<Vec<String>, String>> {
    let mut found: BTreeMap<Vec<String>, Vec<String>> = BTreeMap::new();
    for name in schemas.names() {
        let schema = whole(schemas, name)?;
        lists(schema, name, &pascal(name), &mut found)?;
    }
    let mut named = BTreeMap::new();
    for (schema, pointer, name) in layer.shared {
        let place = format!("{schema}{pointer}");
        let list =
            schemas.part(schema, pointer).ok_or_else(|| wrong(&place, "nothing is there"))?;
        named.insert(words_of(list, &place)?, (*name).to_owned());
    }
    for (words, places) in found {
        match (&places[..], named.contains_key(&words)) {
            ([], _) => {}
            ([one], false) => {
                named.insert(words, one.clone());
            }
            (_, true) => {}
            (several, false) => {
                let what = "these words stand at several places; give them a name in layer.rs";
                return Err(wrong(&several.join(", "), what));
            }
        }
    }
    Ok(named)
}

/// Every list of words below a schema, with the name that follows from its place. Conditions have no types.
fn lists(
    schema: &Value,
    place: &str,
    name: &str,
    found: &mut BTreeMap<Vec<String>, Vec<String>>,
) -> io::Result<()> {
    let Some(rules) = rules(schema) else { return Ok(()) };
    for (key, value) in rules {
        let place = format!("{place}/{key}");
        match key.as_str() {
            // A list of numbers is written where it stands.
            "enum" if value[0].is_number() => {}
            "enum" => found.entry(words_of(value, &place)?).or_default().push(name.to_owned()),
            "properties" | "$defs" => {
                for (member, schema) in value.as_object().into_iter().flatten() {
                    let name = format!("{name}{}", pascal(member));
                    lists(schema, &format!("{place}/{member}"), &name, found)?;
                }
            }
            "anyOf" | "oneOf" => {
                for schema in value.as_array().into_iter().flatten() {
                    lists(schema, &place, name, found)?;
                }
            }
            "items" | "additionalProperties" | "propertyNames" => {
                lists(value, &place, name, found)?
            }
            _ => {}
        }
    }
    Ok(())
}

struct Reader<'s> {
    schemas: &'s Schemas,
    words: BTreeMap<Vec<String>, String>,
    declared: Vec<Declared>,
    names: BTreeSet<String>,
}

impl Reader<'_> {
    /// Declares the type of a whole schema, unless that is done.
    fn root(&mut self, schema: &str) -> io::Result<Shape> {
        let value = whole(self.schemas, schema)?;
        let name = type_name(schema, value);
        if !self.names.contains(&name) {
            // Without `type`, a schema bears what is no object, unless its alternatives say what it is.
            let says = |rules: &&Map<String, Value>| {
                is_object(rules) || rules.contains_key("oneOf") && !rules.contains_key("type")
            };
            let rules = rules(value).filter(says);
            let rules = rules.ok_or_else(|| wrong(schema, "a type with a name is an object"))?;
            self.declare(rules, schema, schema, &name)?;
        }
        Ok(Shape::Named(name))
    }

    /// Declares an object type, or one of several. That the rules are of such a type is for the caller to see.
    fn declare(
        &mut self,
        rules: &Map<String, Value>,
        of: &str,
        place: &str,
        name: &str,
    ) -> io::Result<()> {
        let note = ["title", "$comment"].iter().find_map(|key| text_of(rules, key));
        let body = match rules.get("oneOf") {
            Some(list) if !rules.contains_key("type") => {
                match self.alternatives(list, of, &format!("{place}/oneOf"), name)? {
                    Shape::OneOf(shapes) => Body::OneOf(shapes),
                    one => Body::OneOf(vec![one]),
                }
            }
            _ => {
                let is_open = rules.get("additionalProperties") != Some(&Value::Bool(false));
                Body::Object(self.members(rules, of, place, name)?, is_open)
            }
        };
        self.push(place, Declared { name: name.to_owned(), note, body })
    }

    fn push(&mut self, place: &str, declared: Declared) -> io::Result<()> {
        if !self.names.insert(declared.name.clone()) {
            return Err(wrong(place, &format!("a second type named {}", declared.name)));
        }
        self.declared.push(declared);
        Ok(())
    }

    fn members(
        &mut self,
        rules: &Map<String, Value>,
        of: &str,
        place: &str,
        name: &str,
    ) -> io::Result<Vec<Member>> {
        let listed = rules.get("properties").and_then(Value::as_object);
        let listed = listed.ok_or_else(|| wrong(place, "an object without members"))?;
        for (key, value) in rules {
            let place = format!("{place}/{key}");
            match key.as_str() {
                "type" | "properties" | "required" | "$defs" => {}
                // What is said of several members at once narrows; it may bring none that is not listed.
                "if" | "then" | "else" | "allOf" | "anyOf" | "oneOf" => {
                    narrows(value, listed, &place)?
                }
                "additionalProperties" if value.is_boolean() => {}
                key if NARROWING.contains(&key) => {}
                _ => return Err(wrong(&place, "no type stands for this")),
            }
        }
        let required: BTreeSet<&str> = required(rules).collect();
        if let Some(missing) = required.iter().find(|key| !listed.contains_key(**key)) {
            return Err(wrong(place, &format!("{missing} is required and not described")));
        }
        let mut members = Vec::new();
        for (key, schema) in listed {
            let (at, type_name) = (format!("{place}/{key}"), format!("{name}{}", pascal(key)));
            members.push(Member {
                name: key.clone(),
                shape: self.shape(schema, of, &at, &type_name)?,
                required: required.contains(key.as_str()),
                note: rules_note(schema),
            });
        }
        Ok(members)
    }

    /// The shape of a schema; a type that it needs is called `name`.
    fn shape(&mut self, schema: &Value, of: &str, place: &str, name: &str) -> io::Result<Shape> {
        let Some(rules) = rules(schema) else {
            return Ok(if schema == &Value::Bool(false) { Shape::Never } else { Shape::Any });
        };
        let deciding = ["$ref", "const", "enum", "anyOf", "oneOf", "type"];
        let mut said = deciding.iter().filter(|key| rules.contains_key(**key));
        let Some(key) = said.next() else {
            let is_open = rules.keys().all(|key| NARROWING.contains(&key.as_str()));
            return if is_open { Ok(Shape::Any) } else { Err(wrong(place, "no type is told")) };
        };
        let value = &rules[*key];
        // An object whose alternatives only ask for one member or another is one type.
        if *key == "type" || is_object(rules) && rules.contains_key("properties") {
            return self.typed(rules, of, place, name);
        }
        let is_alone =
            rules.keys().all(|other| other == key || NARROWING.contains(&other.as_str()));
        if !is_alone {
            return Err(wrong(place, &format!("{key} stands beside what no type stands for")));
        }
        match *key {
            "$ref" => self.referred(value, of, place),
            "const" => Ok(Shape::Fixed(value.clone())),
            "enum" => self.listed(value, place),
            _ => self.alternatives(value, of, place, name),
        }
    }

    fn referred(&mut self, to: &Value, of: &str, place: &str) -> io::Result<Shape> {
        let to = to.as_str().unwrap_or_default();
        if let Some(definition) = to.strip_prefix("#/$defs/") {
            let name = pascal(of) + &pascal(definition);
            let schema = self.schemas.part(of, &to[1..]);
            let schema = schema.ok_or_else(|| wrong(place, "it leads nowhere"))?;
            let place = format!("{of}/$defs/{definition}");
            let Some(rules) = rules(schema).filter(|rules| is_object(rules)) else {
                return self.shape(schema, of, &place, &name);
            };
            if !self.names.contains(&name) {
                self.declare(rules, of, &place, &name)?;
            }
            return Ok(Shape::Named(name));
        }
        match to.rsplit_once(':') {
            Some((_, schema)) => self.root(schema),
            None => Err(wrong(place, "a reference of another form")),
        }
    }

    /// One of the listed words or numbers.
    fn listed(&mut self, list: &Value, place: &str) -> io::Result<Shape> {
        match list.as_array() {
            Some(numbers) if numbers.iter().all(Value::is_number) => {
                Ok(one_of(numbers.iter().cloned().map(Shape::Fixed).collect()))
            }
            _ => self.words(words_of(list, place)?, place).map(Shape::Words),
        }
    }

    /// The declared list of these words.
    fn words(&mut self, words: Vec<String>, place: &str) -> io::Result<String> {
        let name = self.words.get(&words).cloned();
        let name = name.ok_or_else(|| wrong(place, "these words have no name"))?;
        if !self.names.contains(&name) {
            let body = Body::Words(words);
            self.push(place, Declared { name: name.clone(), note: None, body })?;
        }
        Ok(name)
    }

    fn alternatives(
        &mut self,
        list: &Value,
        of: &str,
        place: &str,
        name: &str,
    ) -> io::Result<Shape> {
        let list = list.as_array().map_or(&[][..], Vec::as_slice);
        let mut shapes = Vec::new();
        for (number, schema) in list.iter().enumerate() {
            let name = format!("{name}{}", branch_name(schema, number));
            shapes.push(self.shape(schema, of, &format!("{place}/{number}"), &name)?);
        }
        // Known words beside any text: the list is open.
        if shapes.contains(&Shape::Text) {
            shapes.retain(|shape| {
                *shape != Shape::Text || !list.iter().any(|s| s.get("enum").is_some())
            });
            for shape in &mut shapes {
                if let Shape::Words(words) = shape {
                    *shape = Shape::OpenWords(std::mem::take(words));
                }
            }
        }
        Ok(one_of(shapes))
    }

    fn typed(
        &mut self,
        rules: &Map<String, Value>,
        of: &str,
        place: &str,
        name: &str,
    ) -> io::Result<Shape> {
        let types = &rules["type"];
        let one = std::slice::from_ref(types);
        let mut shapes = Vec::new();
        for kind in types.as_array().map_or(one, Vec::as_slice) {
            shapes.push(match kind.as_str().unwrap_or_default() {
                "null" => Shape::Null,
                "boolean" => Shape::Boolean,
                "integer" => Shape::Integer,
                "number" => Shape::Number,
                "string" => Shape::Text,
                "array" => {
                    let items = rules.get("items").unwrap_or(&Value::Bool(true));
                    let name = format!("{name}Item");
                    Shape::List(Box::new(self.shape(
                        items,
                        of,
                        &format!("{place}/items"),
                        &name,
                    )?))
                }
                "object" => self.object(rules, of, place, name)?,
                _ => return Err(wrong(place, "an unknown type")),
            });
        }
        Ok(one_of(shapes))
    }

    fn object(
        &mut self,
        rules: &Map<String, Value>,
        of: &str,
        place: &str,
        name: &str,
    ) -> io::Result<Shape> {
        if rules.contains_key("properties") {
            self.declare(rules, of, place, name)?;
            return Ok(Shape::Named(name.to_owned()));
        }
        let keys = match rules.get("propertyNames").and_then(|names| names.get("enum")) {
            Some(list) => Some(self.words(words_of(list, place)?, place)?),
            None => None,
        };
        let values = rules.get("additionalProperties").unwrap_or(&Value::Bool(true));
        let values = self.shape(values, of, place, &format!("{name}Value"))?;
        Ok(Shape::Map(keys, Box::new(values)))
    }
}

fn is_object(rules: &Map<String, Value>) -> bool {
    rules.get("type").and_then(Value::as_str) == Some("object")
}

/// Alternatives, without a repetition.
fn one_of(shapes: Vec<Shape>) -> Shape {
    let mut different: Vec<Shape> = Vec::new();
    for shape in shapes {
        if !different.contains(&shape) {
            different.push(shape);
        }
    }
    match different.len() {
        1 => different.remove(0),
        _ => Shape::OneOf(different),
    }
}

/// What tells an alternative from the others: the words that one of these members has in it, or what they begin
/// with, else its number.
fn branch_name(schema: &Value, number: usize) -> String {
    let member = |member: &&str| schema.pointer(&format!("/properties/{member}"));
    let mut members = ["state", "kind", "type", "action"].iter().filter_map(member);
    let name = members.find_map(|member| {
        let words = match &member["enum"] {
            Value::Null => vec![member["const"].as_str()?],
            list => list.as_array()?.iter().map(Value::as_str).collect::<Option<_>>()?,
        };
        match &words[..] {
            [one] => Some(pascal(one)),
            [one, two] => Some(pascal(one) + "Or" + &pascal(two)),
            several => Some(pascal(&common_start(several))),
        }
    });
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| (number + 1).to_string())
}

fn common_start(words: &[&str]) -> String {
    let first = words.first().copied().unwrap_or_default();
    let is_common =
        |c: &(usize, char)| words.iter().all(|w| w[..].starts_with(&first[..c.0 + c.1.len_utf8()]));
    first.char_indices().take_while(is_common).map(|(_, c)| c).collect()
}

fn required(rules: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let list = rules.get("required").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

/// A condition over several members has to be about members that are listed.
fn narrows(condition: &Value, listed: &Map<String, Value>, place: &str) -> io::Result<()> {
    if let Some(several) = condition.as_array() {
        return several.iter().try_for_each(|one| narrows(one, listed, place));
    }
    let Some(rules) = rules(condition) else { return Ok(()) };
    let named = rules.get("properties").and_then(Value::as_object);
    let mut named = named.into_iter().flatten().map(|(key, _)| key.as_str()).chain(required(rules));
    if let Some(key) = named.find(|key| !listed.contains_key(*key)) {
        return Err(wrong(place, &format!("{key} is named in a condition and not described")));
    }
    let inner = ["if", "then", "else", "anyOf", "oneOf", "allOf"];
    inner.iter().filter_map(|key| rules.get(*key)).try_for_each(|one| narrows(one, listed, place))
}

fn text_of(rules: &Map<String, Value>, key: &str) -> Option<String> {
    rules.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn rules_note(schema: &Value) -> Option<String> {
    text_of(rules(schema)?, "$comment")
}
