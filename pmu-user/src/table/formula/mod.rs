//! Formulas over events, constants and other formulas, as plain data.
//!
//! The grammar is that of perfmon (`Formula`, `BaseFormula` and `Threshold` of its metric files), with our
//! own names for operands: `EVENT.NAME:c1`, `@Metric`, `#CONSTANT`. [`parse()`] reads text, and
//! [`Expr::write`] writes it so that it reads back as the same expression.

mod parse;

pub(in crate::table) use self::parse::is_of_name;
pub use self::parse::{FormulaError, parse};

/// An expression. Indices are into the lists of the parser's caller.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A plain number.
    Number(f64),
    /// A count of an event.
    Event(u32),
    /// Known property of the machine or the interval.
    Constant(u32),
    /// Value of another metric.
    Metric(u32),
    /// Operation on two operands.
    Binary(Binary, Box<[Expr; 2]>),
    /// `a if condition else b`: condition, a, b. The branch that is not taken does not matter.
    If(Box<[Expr; 3]>),
}

/// Operator of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// `a + b`
    Add,
    /// `a - b`
    Subtract,
    /// `a * b`
    Multiply,
    /// `a / b`: undefined if `b` is 0.
    Divide,
    /// `max(a, b)`: undefined if either is.
    Max,
    /// `min(a, b)`: undefined if either is.
    Min,
    /// `a < b`
    Less,
    /// `a <= b`
    LessOrEqual,
    /// `a > b`
    Greater,
    /// `a >= b`
    GreaterOrEqual,
    /// `a & b`
    And,
    /// `a | b`
    Or,
}

impl Binary {
    const fn sign(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Max => "max",
            Self::Min => "min",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::And => "&",
            Self::Or => "|",
        }
    }

    /// Returns the binding strength: 1 is the weakest. Comparisons bind stronger than `&`, unlike in C and
    /// Python.
    const fn strength(self) -> u8 {
        match self {
            Self::Or => 2,
            Self::And => 3,
            Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual => 4,
            Self::Add | Self::Subtract => 5,
            Self::Multiply | Self::Divide => 6,
            Self::Max | Self::Min => 8,
        }
    }
}

/// Names of the indices in an expression.
pub trait Names {
    /// Returns the name of an event, as formulas write it.
    fn event_name(&self, index: u32) -> &str;
    /// Returns the name of a constant.
    fn constant_name(&self, index: u32) -> &str;
    /// Returns the name of a metric.
    fn metric_name(&self, index: u32) -> &str;
}

impl Expr {
    /// Returns the expression `a op b`.
    pub fn binary(operation: Binary, a: Self, b: Self) -> Self {
        Self::Binary(operation, Box::new([a, b]))
    }

    /// Returns the text of the expression, with no more parentheses than needed.
    pub fn write(&self, names: &dyn Names) -> String {
        let mut text = String::new();
        self.write_to(names, 0, &mut text);
        text
    }

    fn write_to(&self, names: &dyn Names, least: u8, text: &mut String) {
        let own = match self {
            Self::If(_) => 1,
            Self::Binary(operation, _) => operation.strength(),
            Self::Number(number) if *number < 0.0 => 7,
            _ => 9,
        };
        if own < least {
            text.push('(');
        }
        match self {
            Self::Number(number) => text.push_str(&number.to_string()),
            Self::Event(index) => text.push_str(names.event_name(*index)),
            Self::Constant(index) => {
                text.push('#');
                text.push_str(names.constant_name(*index));
            }
            Self::Metric(index) => {
                text.push('@');
                text.push_str(names.metric_name(*index));
            }
            Self::Binary(operation @ (Binary::Max | Binary::Min), operands) => {
                text.push_str(operation.sign());
                text.push('(');
                operands[0].write_to(names, 0, text);
                text.push_str(", ");
                operands[1].write_to(names, 0, text);
                text.push(')');
            }
            Self::Binary(operation, operands) => {
                operands[0].write_to(names, own, text);
                text.push(' ');
                text.push_str(operation.sign());
                text.push(' ');
                // Operators of one strength associate to the left.
                operands[1].write_to(names, own + 1, text);
            }
            Self::If(parts) => {
                parts[1].write_to(names, 2, text);
                text.push_str(" if ");
                parts[0].write_to(names, 2, text);
                text.push_str(" else ");
                parts[2].write_to(names, 1, text);
            }
        }
        if own < least {
            text.push(')');
        }
    }

    /// Returns the number of operators that stand above one another, plus one.
    pub fn height(&self) -> usize {
        let parts: &[Self] = match self {
            Self::Binary(_, operands) => &**operands,
            Self::If(parts) => &**parts,
            _ => &[],
        };
        1 + parts.iter().map(Self::height).max().unwrap_or(0)
    }

    /// Calls `see` with every part, the whole first.
    pub fn visit(&self, see: &mut dyn FnMut(&Self)) {
        see(self);
        match self {
            Self::Binary(_, operands) => operands.iter().for_each(|part| part.visit(see)),
            Self::If(parts) => parts.iter().for_each(|part| part.visit(see)),
            _ => {}
        }
    }
}
