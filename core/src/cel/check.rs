//! The type checker: resolves names and overloads, and computes all types.

use super::ast::*;
use super::functions::{Compiled, LIBRARY};
use super::lex::Complaint;
use super::message::{self, MESSAGES};
use super::types::Type;
use super::unify::{FIRST_VARIABLE, Unifier};

/// Checks the tree, and adds types, variable numbers and overloads to its nodes. Errors are returned in source order.
pub fn check(node: &mut Node, variables: &[(String, Type)], makes_changes: bool) -> Vec<Complaint> {
    let mut checker =
        Checker { variables, makes_changes, scopes: Vec::new(), unifier: Unifier::default(), complaints: Vec::new() };
    checker.node(node);
    if checker.complaints.is_empty() {
        checker.finish(node);
    }
    checker.complaints.sort_by_key(|complaint| complaint.1);
    checker.complaints
}

/// The prefix of the names of functions that only expressions of mutating admission policies may use.
const FOR_CHANGES: &str = "jsonpatch.";

struct Checker<'e> {
    variables: &'e [(String, Type)],
    /// Whether the expression may construct objects and JSON patch operations: only expressions of mutations may.
    makes_changes: bool,
    /// The variables of the macros that enclose the node being checked, outermost first, with their types.
    scopes: Vec<(String, Type)>,
    unifier: Unifier,
    complaints: Vec<Complaint>,
}

impl Checker<'_> {
    fn complain(&mut self, at: u32, message: String) -> Type {
        self.complaints.push((message, at as usize));
        Type::Error
    }

    fn undeclared(&mut self, at: u32, name: &str) -> Type {
        self.complain(at, format!("undeclared reference to '{name}' (in container '')"))
    }

    fn no_overload(&mut self, at: u32, function: &str, arguments: &[Type], member: bool) -> Type {
        let shown: Vec<String> = arguments.iter().map(|ty| self.unifier.finish(ty).to_string()).collect();
        let signature = match shown.split_first() {
            Some((receiver, rest)) if member => format!("{receiver}.({})", rest.join(", ")),
            _ => format!("({})", shown.join(", ")),
        };
        // cel-go's error names the operator `in` by its function, `@in`.
        self.complain(at, format!("found no matching overload for '{function}' applied to '{signature}'"))
    }

    fn mismatch(&mut self, at: u32, expected: &Type, found: &Type) -> Type {
        let (expected, found) = (self.unifier.finish(expected), self.unifier.finish(found));
        self.complain(at, format!("expected type '{expected}' but found '{found}'"))
    }

    fn node(&mut self, node: &mut Node) {
        let at = node.at;
        node.ty = match &mut node.kind {
            Kind::Literal(literal) => literal_type(literal),
            Kind::Name { .. } => return self.name(node),
            Kind::Select { .. } => return self.select(node),
            Kind::Index { operand, index, optional } => {
                self.node(operand);
                self.node(index);
                let function = if *optional { "_[?_]" } else { "_[_]" };
                let types = [operand.ty.clone(), index.ty.clone()];
                match self.overloads(function, false, &types) {
                    Some((_, ty)) => ty,
                    None => self.no_overload(at, function, &types, false),
                }
            }
            Kind::Call(_) => return self.call(node),
            Kind::List(items) => self.list(items),
            Kind::Map(entries) => self.map(entries),
            Kind::Message { name, fields } => self.message(at, name.strip_prefix('.').unwrap_or(name), fields),
            Kind::Logic { operands, .. } => {
                let [left, right] = &mut **operands;
                self.node(left);
                self.node(right);
                for (at, ty) in [(left.at, left.ty.clone()), (right.at, right.ty.clone())] {
                    if !self.unifier.assign(&Type::Bool, &ty) {
                        self.mismatch(at, &Type::Bool, &ty);
                    }
                }
                Type::Bool
            }
            Kind::Conditional(parts) => {
                for part in parts.iter_mut() {
                    self.node(part);
                }
                let types = parts.each_ref().map(|part| part.ty.clone());
                self.conditional(at, &types)
            }
            Kind::Fold(fold) => self.fold(at, fold),
            Kind::OptionalMap(map) => self.optional_map(at, map),
            Kind::Bind(bind) => self.bind(bind),
            // The checker never receives such a node from the parser, because only later stages create it.
            Kind::Among { .. } | Kind::Constant(_) => node.ty.clone(),
        };
    }

    /// Requires that the arguments with the indexes in `which` are booleans.
    fn expect_bools(&mut self, at: u32, function: &str, types: &[Type], which: &[usize]) -> Type {
        if which.iter().all(|&index| self.unifier.assign(&Type::Bool, &types[index])) {
            return Type::Bool;
        }
        self.no_overload(at, function, types, false)
    }

    fn conditional(&mut self, at: u32, types: &[Type; 3]) -> Type {
        let common = self.unifier.fresh();
        let fits = self.unifier.assign(&Type::Bool, &types[0])
            && self.unifier.assign(&common, &types[1])
            && self.unifier.assign(&common, &types[2]);
        if fits { self.unifier.apply(&common) } else { self.no_overload(at, "_?_:_", types, false) }
    }

    fn name(&mut self, node: &mut Node) {
        let Kind::Name { name, place } = &mut node.kind else { return };
        let written = name.clone();
        // A leading dot only means that the name is absolute, so the name is looked up without the dot.
        if let Some(plain) = written.strip_prefix('.') {
            plain.clone_into(name);
        }
        if let Some(local) = self.scopes.iter().rposition(|scope| scope.0 == *name) {
            *place = Place::Local(local);
            node.ty = self.scopes[local].1.clone();
        } else if let Some(variable) = self.variables.iter().rposition(|variable| variable.0 == *name) {
            *place = Place::Variable(variable);
            node.ty = self.variables[variable].1.clone();
        } else if let Some(ty) = named_type(name) {
            node.ty = Type::type_of(ty.clone());
            node.kind = Kind::Literal(Literal::Type(ty));
        } else {
            node.ty = self.undeclared(node.at, &written);
        }
    }

    fn select(&mut self, node: &mut Node) {
        if let Some(ty) = node.qualified_name().and_then(|name| named_type(&name)) {
            node.ty = Type::type_of(ty.clone());
            node.kind = Kind::Literal(Literal::Type(ty));
            return;
        }
        // A variable's name may contain dots. Such a variable has precedence over a field path.
        if let Some(name) = node.qualified_name()
            && let Some(variable) = self.variables.iter().rposition(|variable| variable.0 == name)
        {
            node.ty = self.variables[variable].1.clone();
            node.kind = Kind::Name { name, place: Place::Variable(variable) };
            return;
        }
        let Kind::Select { operand, field, mode } = &mut node.kind else { return };
        self.node(operand);
        let operand_type = self.unifier.resolve(&operand.ty);
        let (target, through_optional) = match operand_type.plain() {
            Type::Optional(inner) => (self.unifier.resolve(inner), true),
            _ => (operand_type.clone(), false),
        };
        let found = match target.plain() {
            Type::Map(entry) => entry.1.clone(),
            Type::Object(object) => match object.type_of(field) {
                Some(found) => found.clone(),
                None => self.complain(node.at, format!("undefined field '{field}'")),
            },
            Type::Param(_) => {
                self.unifier.assign(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn | Type::Error => Type::Dyn,
            _ => self.complain(node.at, format!("type '{target}' does not support field selection")),
        };
        node.ty = match mode {
            Select::Test => Type::Bool,
            Select::Optional => Type::optional(found),
            Select::Value if through_optional => Type::optional(found),
            Select::Value => found,
        };
    }

    fn call(&mut self, node: &mut Node) {
        let at = node.at;
        let Kind::Call(call) = &mut node.kind else { return };
        // A call `a.b.f(x)` is a call of the global function `a.b.f` if that function exists.
        if call.member
            && let Some(prefix) = call.arguments[0].qualified_name()
            && let qualified = format!("{prefix}.{}", call.function)
            && self.has_function(&qualified)
        {
            call.member = false;
            call.function = qualified;
            call.arguments.remove(0);
        }
        for argument in &mut call.arguments {
            self.node(argument);
        }
        if !self.has_function(&call.function) {
            let function = call.function.clone();
            node.ty = self.undeclared(at, &function);
            return;
        }
        let types: Vec<Type> = call.arguments.iter().map(|argument| argument.ty.clone()).collect();
        match self.overloads(&call.function, call.member, &types) {
            Some((overloads, ty)) => {
                call.overloads = overloads;
                node.ty = ty;
            }
            None => {
                let (function, member) = (call.function.clone(), call.member);
                node.ty = self.no_overload(at, &function, &types, member);
            }
        }
    }

    fn has_function(&self, name: &str) -> bool {
        LIBRARY.functions.contains_key(name) && (self.makes_changes || !name.starts_with(FOR_CHANGES))
    }

    /// The overloads that fit the types of the arguments, and the type of the call's result: dynamic if the overloads
    /// differ.
    fn overloads(&mut self, function: &str, member: bool, types: &[Type]) -> Option<(Vec<&'static Compiled>, Type)> {
        let mut found = Vec::new();
        let mut result: Option<Type> = None;
        for overload in LIBRARY.functions.get(function)? {
            if overload.member != member || overload.parameters.len() != types.len() {
                continue;
            }
            let mark = self.unifier.mark();
            let first = self.unifier.fresh_many(overload.placeholders);
            let fits = overload.parameters.iter().zip(types).all(|(parameter, ty)| {
                let parameter =
                    if overload.placeholders == 0 { parameter.clone() } else { instantiate(parameter, first) };
                self.unifier.assign(&parameter, ty)
            });
            if !fits {
                self.unifier.undo(mark);
                continue;
            }
            found.push(overload);
            let ty = self.unifier.apply(&instantiate(&overload.result, first));
            match &result {
                None => result = Some(ty),
                Some(earlier) => {
                    // The arguments keep the type variables that the first fitting overload bound, so the bindings of
                    // this overload are undone.
                    self.unifier.undo(mark);
                    if *earlier != ty {
                        result = Some(Type::Dyn);
                    }
                }
            }
        }
        result.map(|result| (found, result))
    }

    fn list(&mut self, items: &mut [Item]) -> Type {
        let mut common = None;
        for item in items {
            self.node(&mut item.node);
            let ty = self.entry_type(&item.node, item.optional);
            common = Some(self.join(common, ty));
        }
        let item = common.unwrap_or_else(|| self.unifier.fresh());
        Type::list(self.unifier.apply(&item))
    }

    fn map(&mut self, entries: &mut [Entry]) -> Type {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            self.node(&mut entry.key);
            self.node(&mut entry.value);
            let ty = self.entry_type(&entry.value, entry.optional);
            keys = Some(self.join(keys, entry.key.ty.clone()));
            values = Some(self.join(values, ty));
        }
        let [key, value] = [keys, values].map(|ty| ty.unwrap_or_else(|| self.unifier.fresh()));
        Type::map(simple_key(self.unifier.apply(&key)), self.unifier.apply(&value))
    }

    /// The common type of two types: the wider type, or dynamic.
    fn join(&mut self, so_far: Option<Type>, next: Type) -> Type {
        let Some(so_far) = so_far else { return next };
        let mark = self.unifier.mark();
        if !self.unifier.assign(&so_far, &next) {
            self.unifier.undo(mark);
            return Type::Dyn;
        }
        if is_wider(&self.unifier.apply(&so_far), &self.unifier.apply(&next)) { so_far } else { next }
    }

    /// The type of a list item or map value. With a question mark the value is an optional, and the type is its inner
    /// type.
    fn entry_type(&mut self, node: &Node, optional: bool) -> Type {
        if !optional {
            return node.ty.clone();
        }
        let inner = self.unifier.fresh();
        let expected = Type::optional(inner.clone());
        if self.unifier.assign(&expected, &node.ty) {
            return self.unifier.apply(&inner);
        }
        self.mismatch(node.at, &Type::optional(node.ty.clone()), &node.ty.clone())
    }

    fn fold(&mut self, at: u32, fold: &mut Fold) -> Type {
        self.node(&mut fold.range);
        let range = self.unifier.resolve(&fold.range.ty);
        let (key, value) = match range.plain() {
            Type::List(item) => (Type::Int, (**item).clone()),
            Type::Map(entry) => entry.as_ref().clone(),
            Type::Param(_) => {
                self.unifier.assign(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            Type::Dyn | Type::Error => (Type::Dyn, Type::Dyn),
            _ => {
                let ty = self.unifier.apply(&range);
                let allowed = "(must be list, map, or dynamic)";
                let message = format!("expression of type '{ty}' cannot be range of a comprehension {allowed}");
                let error = self.complain(fold.range.at, message);
                (error.clone(), error)
            }
        };
        let is_list = matches!(range.plain(), Type::List(_));
        let single = if is_list { value.clone() } else { key.clone() };
        let outer = self.scopes.len();
        match fold.variables.as_slice() {
            [only] => self.scopes.push((only.clone(), single.clone())),
            [first, second] => {
                self.scopes.push((first.clone(), key.clone()));
                self.scopes.push((second.clone(), value));
            }
            _ => unreachable!("macros have one variable or two"),
        }
        if let Some(filter) = &mut fold.filter {
            self.node(filter);
        }
        self.node(&mut fold.body);
        self.scopes.truncate(outer);
        let body = fold.body.ty.clone();
        // cel-go reports errors of the loop into which it expands the macro. The errors here have the same text.
        match fold.kind {
            FoldKind::All | FoldKind::Exists => {
                if !self.unifier.assign(&Type::Bool, &body) {
                    self.mismatch(fold.body.at, &Type::Bool, &body);
                }
                Type::Bool
            }
            FoldKind::ExistsOne => self.expect_bools(at, "_?_:_", &[body, Type::Int, Type::Int], &[0]),
            FoldKind::Filter => {
                let list = Type::list(single);
                self.expect_bools(at, "_?_:_", &[body, list.clone(), list.clone()], &[0]);
                list
            }
            FoldKind::Map => self.filtered(at, fold, Type::list(body)),
            FoldKind::TransformMap => self.filtered(at, fold, Type::map(simple_key(key), body)),
            FoldKind::TransformMapEntry => {
                let map = Type::map(self.unifier.fresh(), self.unifier.fresh());
                if !self.unifier.assign(&map, &body) {
                    self.no_overload(at, "cel.@mapInsert", &[map.clone(), body], false);
                }
                let map = self.unifier.apply(&map);
                self.filtered(at, fold, map)
            }
        }
    }

    fn filtered(&mut self, at: u32, fold: &Fold, result: Type) -> Type {
        if let Some(filter) = &fold.filter {
            let types = [filter.ty.clone(), result.clone(), result.clone()];
            self.expect_bools(at, "_?_:_", &types, &[0]);
        }
        result
    }

    #[inline(never)]
    fn bind(&mut self, bind: &mut Bind) -> Type {
        self.node(&mut bind.value);
        self.scopes.push((bind.variable.clone(), bind.value.ty.clone()));
        self.node(&mut bind.body);
        self.scopes.pop();
        bind.body.ty.clone()
    }

    #[inline(never)]
    fn message(&mut self, at: u32, name: &str, fields: &mut [MessageField]) -> Type {
        if let Some((_, ty)) = self.scopes.iter().chain(self.variables).find(|variable| variable.0 == name) {
            let ty = ty.clone();
            self.complain(at, format!("'{ty}' is not a type"));
            for field in fields {
                self.complain(field.at, format!("unexpected failed resolution of '{name}'"));
            }
            return Type::Error;
        }
        let Some(made) = self.made_by(name) else { return self.undeclared(at, name) };
        for field in fields {
            self.node(&mut field.node);
            let ty = self.entry_type(&field.node, field.optional);
            match made.type_of(&field.name) {
                Some(expected) if self.unifier.assign(expected, &ty) => {}
                Some(expected) => {
                    let (expected, ty) = (self.unifier.finish(expected), self.unifier.finish(&ty));
                    let message =
                        format!("expected type of field '{}' is '{expected}' but provided type is '{ty}'", field.name);
                    self.complain(field.at, message);
                }
                None => {
                    self.complain(field.at, format!("undefined field '{}'", field.name));
                }
            }
        }
        made.ty
    }

    /// The type of the value that the message literal `name{...}` constructs; `None` if `name` is not a message type.
    fn made_by(&self, name: &str) -> Option<message::Made> {
        let known = MESSAGES.iter().find(|message| message.name == name);
        known.map(message::Made::of).or_else(|| message::Made::change(name).filter(|_| self.makes_changes))
    }

    fn optional_map(&mut self, at: u32, map: &mut OptionalMap) -> Type {
        self.node(&mut map.target);
        let inner = self.unifier.fresh();
        let expected = Type::optional(inner.clone());
        if !self.unifier.assign(&expected, &map.target.ty) {
            let target = map.target.ty.clone();
            self.no_overload(at, "hasValue", &[target], true);
        }
        self.scopes.push((map.variable.clone(), inner));
        self.node(&mut map.body);
        self.scopes.pop();
        let body = map.body.ty.clone();
        if !map.flat {
            return Type::optional(body);
        }
        let absent = Type::optional(self.unifier.fresh());
        self.conditional(at, &[Type::Bool, body, absent])
    }

    /// Replaces the type variables in the types of the node and its children by the types to which they are bound.
    fn finish(&self, node: &mut Node) {
        node.ty = self.unifier.finish(&node.ty);
        node.each_child(&mut |child| self.finish(child));
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
        Literal::Duration(_) => Type::Duration,
        Literal::Timestamp(_) => Type::Timestamp,
        Literal::Type(ty) => Type::type_of(ty.clone()),
        Literal::Json(_) => Type::Dyn,
    }
}

/// The type that a name means when it is used as a value: `int` in `type(x) == int`.
fn named_type(name: &str) -> Option<Type> {
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "string" => Type::String,
        "null_type" => Type::Null,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "type" => Type::type_of(Type::Dyn),
        "optional_type" => Type::optional(Type::Dyn),
        "google.protobuf.Timestamp" => Type::Timestamp,
        "google.protobuf.Duration" => Type::Duration,
        // Of the types that Kubernetes adds, only `net.IP` and `net.CIDR` are declared by name.
        "net.IP" => Type::Opaque("net.IP"),
        "net.CIDR" => Type::Opaque("net.CIDR"),
        _ => return None,
    })
}

/// Whether `one` is dynamic in every part in which `other` is dynamic.
fn is_wider(one: &Type, other: &Type) -> bool {
    match (one.plain(), other.plain()) {
        (Type::Dyn | Type::Param(_) | Type::Error, _) => true,
        (_, Type::Dyn | Type::Param(_) | Type::Error) => false,
        (Type::List(one), Type::List(other)) | (Type::Optional(one), Type::Optional(other)) => is_wider(one, other),
        (Type::Map(one), Type::Map(other)) => is_wider(&one.0, &other.0) && is_wider(&one.1, &other.1),
        // A type is wider than null, because its values include null.
        (one, _) => *one != Type::Null,
    }
}

/// The type of a map's keys. Types that CEL does not allow for keys become dynamic, so that nested map types stay
/// small.
fn simple_key(key: Type) -> Type {
    match key.plain() {
        Type::Bool | Type::Int | Type::Uint | Type::String | Type::Param(_) => key,
        _ => Type::Dyn,
    }
}

/// The type of a signature with its placeholders replaced by type variables.
fn instantiate(ty: &Type, first: u32) -> Type {
    match ty {
        Type::Param(number) if *number < FIRST_VARIABLE => Type::Param(first + number),
        Type::List(item) => Type::list(instantiate(item, first)),
        Type::Map(entry) => Type::map(instantiate(&entry.0, first), instantiate(&entry.1, first)),
        Type::Optional(inner) => Type::optional(instantiate(inner, first)),
        Type::TypeOf(inner) => Type::type_of(instantiate(inner, first)),
        other => other.clone(),
    }
}
