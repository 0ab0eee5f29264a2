//! The Table in which kubectl shows objects.

use crate::object::glance::Glance;
use holdfast_value::Value;
use std::sync::OnceLock;

/// How a kind is shown in a Table. A kind without columns of its own is shown with the columns Name and Created At.
#[derive(Default)]
pub struct Shown {
    pub columns: Vec<Column>,
    /// The fields that the columns read.
    pub glance: Glance,
    /// Decides whether an object is shown as completed. Returns reason and message of the row's condition `Completed`.
    pub completed: Option<Completed>,
    /// An annotation that represents a field of other versions. It is left out when only metadata is shown.
    pub left_out: Option<&'static str>,
    /// The message whose field descriptions the columns use; empty if the columns describe metadata only.
    pub message: String,
    /// The column definitions as JSON. They are made for the first table, because making them takes milliseconds.
    pub definitions: OnceLock<Vec<u8>>,
}

impl Shown {
    pub(in crate::kinds) fn set_columns(&mut self, columns: Vec<Column>) {
        self.glance = glance_of(&columns);
        self.columns = columns;
    }
}

/// The reason and message for a hub document that is completed; `None` for other documents.
pub type Completed = fn(&Value) -> Option<(&'static str, &'static str)>;

/// One column of the Table of a kind.
pub struct Column {
    /// The name in the header; if it is empty, rows have the cell but the header does not name it.
    pub name: String,
    /// The type of the cells: `string`, `integer`, `date`, `boolean`, `number`.
    pub ty: &'static str,
    /// The format of the cells: `name` for the first column.
    pub format: &'static str,
    pub description: Description,
    /// Columns with priority 0 are always shown, and columns with priority 1 only with `-o wide`.
    pub priority: i32,
    pub cell: Cell,
    /// The fields that the cell reads, if they do not follow from `cell`.
    pub reads: Option<&'static [&'static str]>,
}

impl Column {
    /// Names the fields that the cell reads in addition to the metadata. A path `a.*` means the keys of a map.
    pub(in crate::kinds) fn reading(self, paths: &'static [&'static str]) -> Column {
        Column { reads: Some(paths), ..self }
    }

    /// The fields that the cell reads in addition to the metadata; `None` if these may be all fields.
    fn read_fields(&self) -> Option<&[&'static str]> {
        match (self.reads, &self.cell) {
            (Some(paths), _) => Some(paths),
            (None, Cell::Field { path, .. }) => Some(std::slice::from_ref(path)),
            (None, Cell::Read(_) | Cell::Path(_)) => None,
        }
    }
}

/// The part of an object that these columns read: the whole object if one of them may read all fields.
pub(in crate::kinds) fn glance_of(columns: &[Column]) -> Glance {
    let read: Option<Vec<&[&'static str]>> = columns.iter().map(Column::read_fields).collect();
    read.map_or_else(Glance::default, |paths| Glance::at(&paths.concat()))
}

/// A column's description.
pub enum Description {
    Words(String),
    /// The OpenAPI description of the hub version's field at this path.
    Field(&'static str),
}

impl From<&str> for Description {
    fn from(words: &str) -> Self {
        Self::Words(words.into())
    }
}

/// The content of a column's cells.
pub enum Cell {
    /// Shows the field of the hub document at a path.
    Field { path: &'static str, show: fn(&Value, &str) -> Value },
    /// Computes the cell from the hub document. The second argument is the time of the request in seconds since the
    /// epoch.
    Read(fn(&Value, i64) -> Value),
    /// Shows the value at a JSONPath, for columns of custom resources.
    Path(String),
}
