"""Wire formats: one module each, pure functions between JSON and the shared vocabulary.

Every format offers `parse_request(body)`, `encode_response(...)` and a `StreamEncoder`; none of them does I/O, keeps time or
knows the server. Bad input raises InvalidRequestError whose `param` is the dotted path of the field at fault.
"""
