"""Confluent's own files, which a registry knows without their being registered, as it knows those of Google.

As in github.com/confluentinc/schema-registry, protobuf-provider/src/main/proto. ``confluent/meta.proto`` is not among
them: it has nothing but options, and files that are there for options alone are not needed.
"""

from typing import Final

CONFLUENT: Final = {
    "confluent/type/decimal.proto": 'syntax = "proto3"; package confluent.type; '
    "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
    "confluent/types/decimal.proto": 'syntax = "proto3"; import public "confluent/type/decimal.proto";',
    "confluent/type/variant.proto": 'syntax = "proto3"; package confluent.type; '
    "message Variant { bytes metadata = 1; bytes value = 2; }",
}
"""By the names under which they are imported; the second is an older name of the first."""
