# Work in the interpreter and in C, for two seconds.
import time

end = time.monotonic() + 2
while time.monotonic() < end:
    numbers = sorted((k * 7919) % 10007 for k in range(20000))
    text = "".join(str(k) for k in numbers)
    text.replace("1", "22").count("2")
