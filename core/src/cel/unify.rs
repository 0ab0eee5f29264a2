//! Type variables, and the types to which they are bound.

use super::types::Type;

/// The number of the first type variable. Lower numbers are placeholders in signatures.
pub const FIRST_VARIABLE: u32 = 100;

#[derive(Default)]
pub struct Unifier {
    bindings: Vec<Option<Type>>,
    /// Each changed binding with its value before the change, so that changes can be undone.
    trail: Vec<(usize, Option<Type>)>,
}

/// A state of the bindings to which the unifier can return.
#[derive(Clone, Copy)]
pub struct Mark(usize);

impl Unifier {
    pub fn fresh(&mut self) -> Type {
        Type::Param(self.fresh_many(1))
    }

    /// Creates `count` type variables with consecutive numbers. Returns the number of the first one.
    pub fn fresh_many(&mut self, count: u32) -> u32 {
        let first = FIRST_VARIABLE + self.bindings.len() as u32;
        self.bindings.extend((0..count).map(|_| None));
        first
    }

    pub fn mark(&self) -> Mark {
        Mark(self.trail.len())
    }

    pub fn undo(&mut self, mark: Mark) {
        while self.trail.len() > mark.0
            && let Some((index, before)) = self.trail.pop()
        {
            self.bindings[index] = before;
        }
    }

    fn bind(&mut self, number: u32, ty: Type) {
        let index = (number - FIRST_VARIABLE) as usize;
        self.trail.push((index, self.bindings[index].replace(ty)));
    }

    fn binding(&self, ty: &Type) -> Option<&Type> {
        match ty {
            Type::Param(number) => self.bindings.get(number.checked_sub(FIRST_VARIABLE)? as usize)?.as_ref(),
            _ => None,
        }
    }

    /// The type to which a variable is bound, or the type itself if it is no bound variable. Variables inside the type
    /// stay.
    pub fn resolve(&self, ty: &Type) -> Type {
        let mut ty = ty;
        while let Some(bound) = self.binding(ty.plain()) {
            ty = bound;
        }
        ty.clone()
    }

    /// Whether a value of type `actual` can be used where a value of type `expected` is needed. Binds type variables.
    pub fn assign(&mut self, expected: &Type, actual: &Type) -> bool {
        let (to, from) = (self.resolve(expected), self.resolve(actual));
        match (to.plain(), from.plain()) {
            (Type::Param(a), Type::Param(b)) if a == b => true,
            (_, Type::Param(number)) => {
                !self.occurs(*number, &to) && {
                    self.bind(*number, to.clone());
                    true
                }
            }
            (Type::Param(number), _) => {
                !self.occurs(*number, &from) && {
                    self.bind(*number, from.clone());
                    true
                }
            }
            (Type::Dyn | Type::Error, _) => true,
            (_, Type::Dyn | Type::Error) => {
                // A bound type variable becomes dynamic when it gets a dynamic value.
                self.widen(expected, Type::Dyn);
                true
            }
            (Type::Null, Type::Null) => true,
            (Type::Null, other) => {
                nullable(other) && {
                    self.widen(expected, from.clone());
                    true
                }
            }
            (other, Type::Null) => nullable(other),
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.assign(a, b),
            (Type::Map(a), Type::Map(b)) => self.assign(&a.0, &b.0) && self.assign(&a.1, &b.1),
            (Type::TypeOf(_), Type::TypeOf(_)) => true,
            (a, b) => a == b,
        }
    }

    /// Changes the binding of a type variable. If the variable is bound to another variable, the last variable of this
    /// chain is changed.
    fn widen(&mut self, ty: &Type, to: Type) {
        let mut last = None;
        let mut ty = ty;
        while let Some(bound) = self.binding(ty) {
            last = Some(ty);
            ty = bound;
        }
        if let Some(Type::Param(number)) = last {
            let number = *number;
            self.bind(number, to);
        }
    }

    fn occurs(&self, number: u32, ty: &Type) -> bool {
        match self.resolve(ty).plain() {
            Type::Param(other) => *other == number,
            Type::List(inner) | Type::Optional(inner) | Type::TypeOf(inner) => self.occurs(number, inner),
            Type::Map(entry) => self.occurs(number, &entry.0) || self.occurs(number, &entry.1),
            _ => false,
        }
    }

    /// The type with all its bound variables replaced.
    pub fn apply(&self, ty: &Type) -> Type {
        self.rewrite(ty, false)
    }

    /// Like [`Unifier::apply`], but unbound variables become dynamic.
    pub fn finish(&self, ty: &Type) -> Type {
        self.rewrite(ty, true)
    }

    fn rewrite(&self, ty: &Type, finish: bool) -> Type {
        let ty = self.resolve(ty);
        match &ty {
            Type::Param(_) if finish => Type::Dyn,
            Type::List(inner) => Type::list(self.rewrite(inner, finish)),
            Type::Map(entry) => Type::map(self.rewrite(&entry.0, finish), self.rewrite(&entry.1, finish)),
            Type::Optional(inner) => Type::optional(self.rewrite(inner, finish)),
            Type::TypeOf(inner) => Type::type_of(self.rewrite(inner, finish)),
            _ => ty,
        }
    }
}

/// Whether values of the type may be null.
fn nullable(ty: &Type) -> bool {
    matches!(ty, Type::Object(_) | Type::Opaque(_) | Type::Optional(_) | Type::Duration | Type::Timestamp)
}
