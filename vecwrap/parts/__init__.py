"""What the layers are made of where it is more than one file or shared by two: statistics, files, pictures, Atari."""
