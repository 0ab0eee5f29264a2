//! Kubernetes' status code and reason of each refusal.

use super::Refusal;

impl Refusal {
    /// The HTTP status code, also used in metrics.
    pub fn code(&self) -> u16 {
        match self {
            Refusal::BadRequest(_) => 400,
            Refusal::Unauthorized => 401,
            Refusal::Forbidden { .. } => 403,
            Refusal::NotFound(_) | Refusal::NoSuchPath => 404,
            Refusal::MethodNotAllowed { .. } => 405,
            Refusal::NotAcceptable { .. } => 406,
            Refusal::AlreadyExists { .. } | Refusal::Conflict { .. } | Refusal::ApplyConflict { .. } => 409,
            Refusal::Expired { .. } => 410,
            Refusal::TooLarge { .. } => 413,
            Refusal::UnsupportedMediaType { .. } => 415,
            Refusal::Invalid { .. } | Refusal::Unprocessable => 422,
            Refusal::TooManyRequests { .. } | Refusal::DisruptionBudget { .. } => 429,
            Refusal::Internal(_) | Refusal::Unreasoned(_) | Refusal::StoreRead { .. } => 500,
            Refusal::Unavailable(_) => 503,
            Refusal::Timeout { .. } => 504,
            Refusal::InsufficientStorage(_) => 507,
            Refusal::Ruled(ruling) => ruling.code,
        }
    }

    /// The `reason` of the refusal's `Status`; empty if Kubernetes sets none.
    pub fn reason(&self) -> &str {
        match self {
            Refusal::BadRequest(_) => "BadRequest",
            Refusal::Unauthorized => "Unauthorized",
            Refusal::Forbidden { .. } => "Forbidden",
            Refusal::NotFound(_) | Refusal::NoSuchPath => "NotFound",
            Refusal::MethodNotAllowed { .. } => "MethodNotAllowed",
            Refusal::AlreadyExists { .. } => "AlreadyExists",
            Refusal::Conflict { .. } | Refusal::ApplyConflict(_) => "Conflict",
            Refusal::Invalid { .. } | Refusal::Unprocessable => "Invalid",
            Refusal::NotAcceptable { .. } => "NotAcceptable",
            Refusal::UnsupportedMediaType { .. } => "UnsupportedMediaType",
            Refusal::TooLarge(_) => "RequestEntityTooLarge",
            Refusal::Expired(_) => "Expired",
            Refusal::TooManyRequests { .. } | Refusal::DisruptionBudget { .. } => "TooManyRequests",
            Refusal::Timeout(_) => "Timeout",
            Refusal::Internal(_) | Refusal::InsufficientStorage(_) => "InternalError",
            Refusal::Unreasoned(_) => "",
            Refusal::StoreRead { .. } => "StorageReadError",
            Refusal::Unavailable(_) => "ServiceUnavailable",
            Refusal::Ruled(ruling) => &ruling.reason,
        }
    }
}
