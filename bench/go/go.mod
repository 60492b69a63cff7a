module bench

go 1.21

require tensormsg v0.0.0

replace tensormsg => ../../bindings/go
