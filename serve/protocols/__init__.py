"""The protocols that clients already speak: each decodes a body into an Ask and encodes a finished job into a Reply."""
