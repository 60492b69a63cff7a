module tensormsg

go 1.21
