//! Parser of text into an [`Expr`], by recursive descent. The caller resolves names.

use super::{Binary, Expr};

/// Maximum nesting of parentheses, signs and conditionals: more is an attack, not a formula.
const DEPTH_MAX: usize = 200;
/// Maximum height of an expression: operators of one strength nest to the left, so that a long sum is high,
/// too.
const HEIGHT_MAX: usize = 256;

/// Error for a text that is not a formula.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("formula, character {}: {what}", .at + 1)]
pub struct FormulaError {
    /// Position of the error, in bytes.
    pub at: usize,
    /// Description of the error.
    pub what: String,
}

/// Parses `text`. `meaning` returns the expression of a name, or the reason why it has none.
///
/// # Errors
///
/// Returns the position and the fault there.
pub fn parse(
    text: &str,
    meaning: &mut dyn FnMut(&str) -> Result<Expr, String>,
) -> Result<Expr, FormulaError> {
    let mut parser = Parser { text, at: 0, depth: 0, height: 0, meaning };
    let expr = parser.conditional()?;
    match parser.peek() {
        None => Ok(expr),
        Some(_) => Err(parser.error("it should end here")),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    /// Height of the expression that was parsed last.
    height: usize,
    meaning: &'a mut dyn FnMut(&str) -> Result<Expr, String>,
}

/// Operators of one strength, the longer sign first.
type Operators = &'static [(&'static str, Binary)];

const LEVELS: [Operators; 5] = [
    &[("||", Binary::Or), ("|", Binary::Or)],
    &[("&&", Binary::And), ("&", Binary::And)],
    &[
        ("<=", Binary::LessOrEqual),
        // One file writes it with a space.
        ("< =", Binary::LessOrEqual),
        ("<", Binary::Less),
        (">=", Binary::GreaterOrEqual),
        ("> =", Binary::GreaterOrEqual),
        (">", Binary::Greater),
    ],
    &[("+", Binary::Add), ("-", Binary::Subtract)],
    &[("*", Binary::Multiply), ("/", Binary::Divide)],
];

impl Parser<'_> {
    fn error(&self, what: impl Into<String>) -> FormulaError {
        FormulaError { at: self.at, what: what.into() }
    }

    fn rest(&mut self) -> &str {
        let blank = self.text[self.at..].len() - self.text[self.at..].trim_start().len();
        self.at += blank;
        &self.text[self.at..]
    }

    fn peek(&mut self) -> Option<u8> {
        self.rest().bytes().next()
    }

    /// Takes `sign` if it comes next.
    fn take(&mut self, sign: &str) -> bool {
        let taken = self.rest().starts_with(sign);
        if taken {
            self.at += sign.len();
        }
        taken
    }

    /// Takes `word` if it comes next and ends there.
    fn take_word(&mut self, word: &str) -> bool {
        let rest = self.rest();
        let taken = rest.starts_with(word) && !rest[word.len()..].starts_with(is_of_name);
        if taken {
            self.at += word.len();
        }
        taken
    }

    /// Parses one level deeper.
    fn nested(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<Expr, FormulaError>,
    ) -> Result<Expr, FormulaError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error("it is nested too deep"));
        }
        let expr = parse(self)?;
        self.depth -= 1;
        Ok(expr)
    }

    /// Records that an expression is above parts, of which the highest is as high as `highest`.
    fn above(&mut self, highest: usize) -> Result<(), FormulaError> {
        self.height = highest + 1;
        if self.height > HEIGHT_MAX { Err(self.error("it is too long")) } else { Ok(()) }
    }

    /// Parses `a if condition else b`, which binds weakest and nests to the right.
    fn conditional(&mut self) -> Result<Expr, FormulaError> {
        self.nested(|parser| {
            let value = parser.binary(0)?;
            if !parser.take_word("if") {
                return Ok(value);
            }
            let mut highest = parser.height;
            let condition = parser.binary(0)?;
            highest = highest.max(parser.height);
            if !parser.take_word("else") {
                return Err(parser.error("`if` without `else`"));
            }
            let otherwise = parser.conditional()?;
            parser.above(highest.max(parser.height))?;
            Ok(Expr::If(Box::new([condition, value, otherwise])))
        })
    }

    fn binary(&mut self, level: usize) -> Result<Expr, FormulaError> {
        let Some(operators) = LEVELS.get(level) else { return self.operand() };
        let mut left = self.binary(level + 1)?;
        let mut height = self.height;
        while let Some((_, operation)) = operators.iter().find(|(sign, _)| self.take(sign)) {
            let right = self.binary(level + 1)?;
            self.above(height.max(self.height))?;
            height = self.height;
            left = Expr::binary(*operation, left, right);
        }
        self.height = height;
        Ok(left)
    }

    fn operand(&mut self) -> Result<Expr, FormulaError> {
        match self.peek() {
            None => Err(self.error("something is missing at the end")),
            Some(b'(') => {
                self.at += 1;
                let inner = self.conditional()?;
                self.close()?;
                Ok(inner)
            }
            Some(b'-') => {
                self.at += 1;
                match self.nested(Self::operand)? {
                    Expr::Number(number) => Ok(Expr::Number(-number)),
                    other => {
                        self.above(self.height)?;
                        Ok(Expr::binary(Binary::Subtract, Expr::Number(0.0), other))
                    }
                }
            }
            Some(byte) if byte.is_ascii_digit() || byte == b'.' => self.number(),
            _ if self.rest().starts_with(is_of_name) => self.name(),
            Some(_) => Err(self.error("this is not an operand")),
        }
    }

    fn close(&mut self) -> Result<(), FormulaError> {
        if self.take(")") { Ok(()) } else { Err(self.error("`)` is missing")) }
    }

    fn number(&mut self) -> Result<Expr, FormulaError> {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let mut end = 0;
        while let Some(&byte) = bytes.get(end) {
            let exponent = |at: usize| matches!(bytes.get(at), Some(b'e' | b'E'));
            let sign = matches!(byte, b'+' | b'-') && end > 0 && exponent(end - 1);
            if !(byte.is_ascii_digit() || byte == b'.' || exponent(end) || sign) {
                break;
            }
            end += 1;
        }
        let number = rest[..end].parse::<f64>().ok().filter(|number| number.is_finite());
        let number = number.ok_or_else(|| self.error("this is not a number"))?;
        self.at += end;
        self.height = 1;
        Ok(Expr::Number(number))
    }

    fn name(&mut self) -> Result<Expr, FormulaError> {
        let rest = self.rest();
        let end = rest.find(|character| !is_of_name(character)).unwrap_or(rest.len());
        let (name, after) = (rest[..end].to_owned(), rest[end..].trim_start().starts_with('('));
        if let (Some(operation), true) = (function(&name), after) {
            self.at += end;
            return self.call(operation);
        }
        let expr = (self.meaning)(&name).map_err(|why| self.error(why))?;
        self.at += end;
        self.height = expr.height();
        // `a[0]`: the first instance of an event, which is all there is of a sum.
        self.take("[0]");
        Ok(expr)
    }

    fn call(&mut self, operation: Binary) -> Result<Expr, FormulaError> {
        self.take("(");
        let a = self.conditional()?;
        let height = self.height;
        if !self.take(",") {
            return Err(self.error("`,` is missing"));
        }
        let b = self.conditional()?;
        self.above(height.max(self.height))?;
        self.close()?;
        Ok(Expr::binary(operation, a, b))
    }
}

fn function(name: &str) -> Option<Binary> {
    match name {
        "max" => Some(Binary::Max),
        "min" => Some(Binary::Min),
        _ => None,
    }
}

/// Returns whether a name can hold `character`. Names of events hold dots, modifiers colons and `=`.
pub(in crate::table) fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '.' | ':' | '@' | '#' | '=')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Expr, FormulaError, parse};
    use crate::table::formula::{Binary, Names};

    /// Names are letters: a is event 0, and so on.
    struct Letters;

    const LETTERS: [&str; 4] = ["a", "b.c", "d:c1:e1", "e"];

    impl Names for Letters {
        fn event_name(&self, index: u32) -> &str {
            LETTERS[index as usize]
        }
        fn constant_name(&self, index: u32) -> &str {
            LETTERS[index as usize]
        }
        fn metric_name(&self, index: u32) -> &str {
            LETTERS[index as usize]
        }
    }

    fn meaning(name: &str) -> Result<Expr, String> {
        let (kind, name): (fn(u32) -> Expr, &str) = match name.as_bytes()[0] {
            b'@' => (Expr::Metric, &name[1..]),
            b'#' => (Expr::Constant, &name[1..]),
            _ => (Expr::Event, name),
        };
        let index = LETTERS.iter().position(|known| *known == name);
        index.map(|index| kind(index as u32)).ok_or_else(|| format!("`{name}` is unknown"))
    }

    fn read(text: &str) -> Result<Expr, FormulaError> {
        parse(text, &mut meaning)
    }

    fn written(text: &str) -> String {
        read(text).unwrap().write(&Letters)
    }

    #[test]
    fn operators_bind_as_in_perfmon() {
        assert_eq!(written("a + b.c * e - 2"), "a + b.c * e - 2");
        assert_eq!(written("(a - (b.c - e)) / (a * e)"), "(a - (b.c - e)) / (a * e)");
        // A comparison binds stronger than `&`, which binds stronger than `|`.
        assert_eq!(written("( a > 5 ) & ( e > 10 ) | e < 1"), "a > 5 & e > 10 | e < 1");
        assert_eq!(read("a > 5 && e > 1").unwrap(), read("a > 5 & e > 1").unwrap());
    }

    #[test]
    fn a_conditional_binds_weakest() {
        assert_eq!(read("1 - a / 2 if #e else 0").unwrap(), read("(1 - a / 2) if #e else (0)").unwrap());
        assert_eq!(written("( a / 2 ) if ( e > = 0 ) else ( b.c )"), "a / 2 if e >= 0 else b.c");
        assert_eq!(written("(a if e else 1) * 2"), "(a if e else 1) * 2");
    }

    #[test]
    fn calls_numbers_and_names_are_read() {
        assert_eq!(
            written("max( 0 , min(a, d:c1:e1) ) * 1e3 * (64 / 9.0)"),
            "max(0, min(a, d:c1:e1)) * 1000 * (64 / 9)"
        );
        assert_eq!(written("@a / #e"), "@a / #e");
        assert_eq!(written("(a / e[0]) * -2"), "a / e * -2");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        assert_eq!(read("a + x").unwrap_err(), FormulaError { at: 4, what: "`x` is unknown".to_owned() });
        for (text, at) in
            [("", 0), ("a +", 3), ("(a", 2), ("a b.c", 2), ("a if e", 6), ("max(a)", 5), ("a ! e", 2)]
        {
            assert_eq!(read(text).unwrap_err().at, at, "{text}");
        }
    }

    #[test]
    fn no_formula_is_deeper_than_a_stack() {
        let why = |text: &str| read(text).unwrap_err().what;
        for sign in ["(", "-", "max(a,", "a if e else "] {
            assert_eq!(why(&sign.repeat(100_000)), "it is nested too deep", "{sign}");
        }
        for sign in ["+", " * ", "<", "|"] {
            assert_eq!(why(&vec!["a"; 100_000].join(sign)), "it is too long", "{sign}");
            assert!(read(&vec!["a"; 200].join(sign)).is_ok(), "{sign}");
        }
        assert!(read(&format!("{}a{}", "(".repeat(150), ")".repeat(150))).is_ok());
    }

    fn expression() -> impl Strategy<Value = Expr> {
        let leaf = prop_oneof![
            (0..1_000_000_u32).prop_map(|number| Expr::Number(f64::from(number) / 64.0)),
            (0..4_u32).prop_map(Expr::Event),
            (0..4_u32).prop_map(Expr::Metric),
            (0..4_u32).prop_map(Expr::Constant),
        ];
        let operation = prop_oneof![
            Just(Binary::Add),
            Just(Binary::Subtract),
            Just(Binary::Multiply),
            Just(Binary::Divide),
            Just(Binary::Max),
            Just(Binary::Min),
            Just(Binary::Less),
            Just(Binary::GreaterOrEqual),
            Just(Binary::And),
            Just(Binary::Or),
        ];
        leaf.prop_recursive(6, 64, 3, move |inner| {
            prop_oneof![
                3 => (operation.clone(), inner.clone(), inner.clone()).prop_map(|(op, a, b)| Expr::binary(op, a, b)),
                1 => (inner.clone(), inner.clone(), inner).prop_map(|(c, a, b)| Expr::If(Box::new([c, a, b]))),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_the_same(expr in expression()) {
            prop_assert_eq!(read(&expr.write(&Letters)).unwrap(), expr);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[a-e@#.:0-9 ()+*/<>=&|,-]{0,40}") {
            let _ = read(&text);
        }
    }
}
