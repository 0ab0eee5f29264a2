//! The protobuf messages of the KMS API, and of stored values.

use std::collections::HashMap;

/// The messages of `v2.KeyManagementService`.
pub mod v2 {
    use super::HashMap;

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct StatusRequest {}

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct StatusResponse {
        #[prost(string, tag = "1")]
        pub version: String,
        #[prost(string, tag = "2")]
        pub healthz: String,
        #[prost(string, tag = "3")]
        pub key_id: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct EncryptRequest {
        #[prost(bytes = "vec", tag = "1")]
        pub plaintext: Vec<u8>,
        #[prost(string, tag = "2")]
        pub uid: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct EncryptResponse {
        #[prost(bytes = "vec", tag = "1")]
        pub ciphertext: Vec<u8>,
        #[prost(string, tag = "2")]
        pub key_id: String,
        #[prost(map = "string, bytes", tag = "3")]
        pub annotations: HashMap<String, Vec<u8>>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct DecryptRequest {
        #[prost(bytes = "vec", tag = "1")]
        pub ciphertext: Vec<u8>,
        #[prost(string, tag = "2")]
        pub uid: String,
        #[prost(string, tag = "3")]
        pub key_id: String,
        #[prost(map = "string, bytes", tag = "4")]
        pub annotations: HashMap<String, Vec<u8>>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct DecryptResponse {
        #[prost(bytes = "vec", tag = "1")]
        pub plaintext: Vec<u8>,
    }

    /// A value of version 2 as it is stored, without its prefix.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct EncryptedObject {
        #[prost(bytes = "vec", tag = "1")]
        pub encrypted_data: Vec<u8>,
        #[prost(string, tag = "2")]
        pub key_id: String,
        #[prost(bytes = "vec", tag = "3")]
        pub encrypted_dek_source: Vec<u8>,
        #[prost(map = "string, bytes", tag = "4")]
        pub annotations: HashMap<String, Vec<u8>>,
        /// The type of the source. 1 means a seed from which keys are derived.
        #[prost(int32, tag = "5")]
        pub encrypted_dek_source_type: i32,
    }
}

/// The messages of `v1beta1.KeyManagementService`.
pub mod v1 {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct EncryptRequest {
        #[prost(string, tag = "1")]
        pub version: String,
        #[prost(bytes = "vec", tag = "2")]
        pub plain: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct EncryptResponse {
        #[prost(bytes = "vec", tag = "1")]
        pub cipher: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct DecryptRequest {
        #[prost(string, tag = "1")]
        pub version: String,
        #[prost(bytes = "vec", tag = "2")]
        pub cipher: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct DecryptResponse {
        #[prost(bytes = "vec", tag = "1")]
        pub plain: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct VersionRequest {
        #[prost(string, tag = "1")]
        pub version: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct VersionResponse {
        #[prost(string, tag = "1")]
        pub version: String,
        #[prost(string, tag = "2")]
        pub runtime_name: String,
        #[prost(string, tag = "3")]
        pub runtime_version: String,
    }
}
